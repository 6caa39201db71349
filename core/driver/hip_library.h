// Chooses which copy of AMD's HIP runtime to use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace opdock::hip {

// Returns the path of a copy that this process has already loaded (a PyTorch for ROCm brings its
// own); "" if there is none. Two copies in one process would not know each other's streams and
// memory.
std::string loaded_library();

// Returns paths and names for dlopen in the order in which to try them: $ROCM_PATH/lib,
// /opt/rocm/lib, and what the loader finds by itself; in each place libamdhip64.so.7 before .6
// before .5. `rocm` is ROCM_PATH, or empty.
std::vector<std::string> library_candidates(const std::string& rocm);

// Opens the copy to use. On failure *out is NULL and the text names what was tried.
Status open_library(void** out);

}  // namespace opdock::hip
