// SPDX-License-Identifier: Apache-2.0
#include "build/result.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "link/search.h"
#include "note/file_facts.h"
#include "opdock/plugin.h"

namespace opdock {

std::optional<Reason> check_result(const std::string& path, const Manifest& manifest) {
  const std::string wanted = "the plugin " + manifest.name + " as " + manifest.name + ".so";
  const auto refuse = [&](const std::string& found) {
    return make_reason(Code::kBuildResult, found, wanted);
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status{};
  if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (fd >= 0) close(fd);
    return refuse("a build that succeeded and left no " + manifest.name + ".so");
  }
  const FileFacts facts =
      read_file_facts(fd, static_cast<uint64_t>(status.st_size), path, Depth::kJudge);
  close(fd);
  for (const Reason& reason : facts.reasons) {
    if (info(reason.code).severity == Severity::kReject) {
      return refuse(std::string(info(reason.code).name) + ": " + reason.found);
    }
  }
  if (facts.machine != kThisMachine) return refuse("a file for another kind of processor");
  if (!facts.note) return refuse("a file without Opdock's note");
  if (facts.note->name != manifest.name) return refuse("the plugin " + facts.note->name);
  const NoteHead& head = facts.note->head;
  if (!is_callable_abi(head.abi_major, head.abi_minor)) {
    return refuse("a plugin for " + abi_text(head.abi_major, head.abi_minor));
  }
  return std::nullopt;
}

}  // namespace opdock
