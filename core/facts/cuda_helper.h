// Gets CUDA facts where NVML is missing or broken (WSL, Jetson). A short-lived process initialises
// the driver, so that this process can still fork.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "facts/environment.h"
#include "facts/machine.h"

namespace opdock {

// Runs environment.helper once, waits for at most environment.helper_deadline, and fills in the
// CUDA members of `facts`. If the helper is missing, fails, prints nonsense or hangs (then it is
// killed), facts->cuda_problem says so.
void ask_cuda_helper(const Environment& environment, MachineFacts* facts);

}  // namespace opdock
