// Fuzzes the wheel reader. It reads only members that the zip directory lists, all with paths
// inside the wheel.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "inspect/wheel.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) abort();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  std::vector<opdock::Reason> reasons;
  const std::shared_ptr<const opdock::Wheel> wheel = opdock::Wheel::read(path, &reasons);
  // A wheel that cannot be read has a reason.
  if (wheel == nullptr && reasons.empty()) abort();
  for (const opdock::Reason& reason : reasons) {
    if (reason.found.empty() || reason.wanted.empty()) abort();
  }
  if (wheel == nullptr) return 0;
  for (const opdock::WheelMember& member : wheel->members()) {
    if (!opdock::unsafe_name(member.name).empty()) abort();
    if (!member.path.starts_with(path + "/") || opdock::plain_path(member.path) != member.path) {
      abort();
    }
    if (!wheel->identify(member.path)) abort();
    reasons.clear();
    const std::optional<opdock::OpenFile> file = wheel->open(member.path, &reasons);
    if (file.has_value() != reasons.empty()) abort();
    struct stat status{};
    if (!file) continue;
    if (fstat(file->fd.get(), &status) != 0) abort();
    if (static_cast<uint64_t>(status.st_size) != file->size) abort();
  }
  for (const char* outside : {"/..", "/../5", "/a/../../1", "/."}) {
    if (wheel->open(path + outside)) abort();
  }
  return 0;
}
