// Meson and Ninja, one after the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "build/builder.h"
#include "build/project.h"
#include "build/tools.h"

namespace opdock {

// What a build's steps are run for and with. All of it outlives them.
struct StepJob {
  const Manifest& manifest;
  const BuildOptions& options;
  const BuildTools& tools;
  const Languages& languages;
  const ProjectFolders& folders;  // with the project written
  std::chrono::steady_clock::time_point deadline;
  Progress* progress;  // may be NULL
};

// False and a reason of stage "build" for the first step that fails (build/triage.h). *log: the
// commands and what they print are appended.
bool run_steps(const StepJob& job, std::string* log, std::vector<Reason>* why);

}  // namespace opdock
