// Finds the plugins that installed Python packages bring.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock::cli {

// Returns the folders of plugins that packages of the active Python ($OPDOCK_PYTHON, else python3)
// announce by entry points of the group "opdock.plugins", as opdock.load() finds them, with colons
// between; empty if there are none or no Python answers. No package is imported. Blocks until that
// process ends, ten seconds at most.
std::string package_folders();

}  // namespace opdock::cli
