// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "discover/catalog.h"
#include "discover/scan.h"

namespace opdock {

std::shared_ptr<const Candidate> examine(const std::string& path, const MachineFacts& machine,
                                         Depth depth) {
  const Files files;
  Linker linker(this_process(machine.cpu_level), &files);
  return std::make_shared<const Candidate>(
      look_at({AT_FDCWD, path}, path, "explicit path", nullptr, {}, machine, &linker, depth));
}

}  // namespace opdock
