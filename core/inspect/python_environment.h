// Finds the Python environment that is active in a shell.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace opdock {

struct PythonEnvironment {
  std::string executable;          // "" if no interpreter was asked
  std::string version;             // "3.11.2"
  std::vector<std::string> sites;  // folders of packages, absolute, in the order of the imports
};

// Asks the interpreter of $VIRTUAL_ENV, else python3 of PATH, once and in isolated mode (-I):
// neither the current folder nor the user's variables change the answer. Returns nullopt and sets
// *problem if there is none or it does not answer. Blocks until that process ends.
std::optional<PythonEnvironment> active_python(std::string* problem);

// Returns the folders of packages of the virtual environment `folder` (with a pyvenv.cfg), judged
// only by names.
std::vector<std::string> sites_of_venv(const std::string& folder);

}  // namespace opdock
