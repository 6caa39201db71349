// What went wrong in a build: the first real error out of the log, and what it most likely means.
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
  std::string_view log;          // what the step printed
  std::string plugin_folder;     // where the plugin's source is, as the user knows it
  std::string copied_folder;     // where its copy was built
  std::string archs;             // that were asked for
  std::vector<std::string> ops;  // that plugin.toml declares
  ToolLimits limits;
  // The newest architecture that this nvcc knows, as "10.3"; empty: unknown or not asked.
  std::string newest_arch;
};

// One reason of stage "build", its `found` being the error with file and line and at most a dozen
// lines of what belongs to it.
Reason triage(const FailedStep& step);

// The message that the step failed for, without ninja's and Meson's noise: at most 20 lines, names
// of the copied source as they are in the plugin's folder. Empty if the log has none.
std::string first_error(const FailedStep& step);

// True for failures that another attempt can end otherwise though no input and no compiler changed:
// timeouts, a full disk, want of memory, a header that has been installed since. They are not held
// against a later attempt.
bool is_passing(const Reason& reason);

}  // namespace opdock
