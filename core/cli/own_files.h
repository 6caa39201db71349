// Finds what was installed with this command, from the command's own place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/installed.h"

namespace opdock::cli {

// Returns the running program's own path, absolute; empty if /proc is not mounted.
std::string own_path();

// Returns share/opdock and what is in it, next to this command; members as in base/installed.h.
Installed own_files();

}  // namespace opdock::cli
