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
  const Files files;
  const auto link_in = [&](ProcessModel process) {
    Linker linker(std::move(process), &files);
    return linker.link(library, candidate->path);
  };
  LinkFacts link;
  bool is_for_python = library != nullptr && wants_python(*library);
  if (!is_for_python) {
    link = link_in(fresh_process(machine.cpu_level));
    is_for_python = std::any_of(
        link.problems.begin(), link.problems.end(), [](const LinkProblem& problem) {
          return problem.kind == LinkProblem::Kind::kSymbol && is_python_symbol(problem.name);
        });
  }
  if (is_for_python) {
    const auto python = find_python(python_version_of(candidate->path), {});
    auto process = python ? started_program(*python, machine.cpu_level) : std::nullopt;
    link = link_in(process ? *std::move(process) : fresh_process(machine.cpu_level));
  }
  candidate->file.link = std::move(link);
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
