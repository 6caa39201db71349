// Which copy of AMD's HIP runtime to use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace opdock::hip {

// A copy that this process has loaded already (a PyTorch for ROCm brings its own): two in one
// process would not know of each other's streams and memory. "" if there is none.
std::string loaded_library();

// Paths and names for dlopen, in the order in which to try them: $ROCM_PATH/lib, /opt/rocm/lib, and
// what the loader finds by itself; in each place libamdhip64.so.7 before .6 before .5. `rocm` is
// ROCM_PATH, or empty.
std::vector<std::string> library_candidates(const std::string& rocm);

// Opens the one to use; *out: NULL if none can be, and the text names what was tried.
Status open_library(void** out);

}  // namespace opdock::hip
