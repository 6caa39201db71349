// What was installed with this command, found from where it lies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/installed.h"

namespace opdock::cli {

// The running program's own path, absolute; empty where /proc is not mounted.
std::string own_path();

// share/opdock and what is in it, beside this command; members as in base/installed.h.
Installed own_files();

}  // namespace opdock::cli
