// Runs the steps of a build: Meson, then Ninja.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "build/builder.h"
#include "build/project.h"
#include "build/tools.h"

namespace opdock {

// The inputs of a build's steps. Everything referenced must outlive the steps.
struct StepJob {
  const Manifest& manifest;
  const BuildOptions& options;
  const BuildTools& tools;
  const Languages& languages;
  const ProjectFolders& folders;  // the project must be written already
  std::chrono::steady_clock::time_point deadline;
  Progress* progress;  // may be NULL
};

// Runs the steps. Returns false and adds a reason of stage "build" for the first step that fails
// (build/triage.h). Appends the commands and their output to *log.
bool run_steps(const StepJob& job, std::string* log, std::vector<Reason>* why);

}  // namespace opdock
