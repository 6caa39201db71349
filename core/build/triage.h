// Finds out why a build failed: extracts the first real error from the log, and what it most likely
// means.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "build/limits.h"
#include "build/process.h"

namespace opdock {

struct FailedStep {
  enum Phase { kSetup, kCompile };
  Phase phase = kCompile;
  ProcessEnd end;
  std::string_view log;          // the step's output
  std::string plugin_folder;     // where the plugin's source is, as the user knows it
  std::string copied_folder;     // where its copy was built
  std::string archs;             // the requested architectures
  std::vector<std::string> ops;  // the ops that plugin.toml declares
  ToolLimits limits;
  // The newest architecture that this nvcc knows, as "10.3"; empty: unknown or not asked.
  std::string newest_arch;
};

// Returns one reason of stage "build". Its `found` is first_error(): the error with file and line
// and what belongs to it.
Reason triage(const FailedStep& step);

// Returns the message that the step failed for, without ninja's and Meson's noise: at most 20
// lines, with the names of copied sources as they are in the plugin's folder. Empty if the log has
// none.
std::string first_error(const FailedStep& step);

// Returns whether another attempt may end differently although no input and no compiler changed:
// for timeouts, a full disk, lack of memory, or a header that has been installed since. Such
// failures are not held against a later attempt.
bool is_passing(const Reason& reason);

}  // namespace opdock
