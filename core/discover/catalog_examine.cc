// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>

#include "discover/catalog.h"
#include "discover/scan.h"
#include "link/python.h"

namespace opdock {

namespace {

// Native code that is no plugin is asked about as a library, in the process that it is for.
void judge_as_library(const MachineFacts& machine, Candidate* candidate) {
  const std::shared_ptr<const Library>& library = candidate->file.library;
  std::optional<ProcessModel> process;
  if (library != nullptr && wants_python(*library)) {
    const auto python = find_python(python_version_of(candidate->path), {});
    if (python) process = started_program(*python, machine.cpu_level);
  }
  if (!process) process = fresh_process(machine.cpu_level);
  const Files files;
  Linker linker(*std::move(process), &files);
  candidate->file.link = linker.link(library, candidate->path);
  candidate->verdict = judge(candidate->file, machine, Role::kLibrary);
}

bool is_plugin(const FileFacts& file) {
  return file.note || file.exports_entry ||
         std::any_of(file.reasons.begin(), file.reasons.end(), [](const Reason& reason) {
           return info(reason.code).stage == "note" && reason.code != Code::kNoteMissing;
         });
}

}  // namespace

std::shared_ptr<const Candidate> examine(const std::string& path, const MachineFacts& machine,
                                         Depth depth) {
  const Files files;
  Linker linker(this_process(machine.cpu_level), &files);
  Candidate candidate =
      look_at({AT_FDCWD, path}, path, "explicit path", nullptr, {}, machine, &linker, depth);
  if (depth == Depth::kInspect && candidate.file.is_elf && !is_plugin(candidate.file)) {
    judge_as_library(machine, &candidate);
  }
  return std::make_shared<const Candidate>(std::move(candidate));
}

}  // namespace opdock
