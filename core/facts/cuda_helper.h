// CUDA facts where NVML is missing or broken (WSL, Jetson): a short-lived process initialises the
// driver, so that this one stays fit for fork.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "facts/environment.h"
#include "facts/machine.h"

namespace opdock {

// Runs environment.helper once, waits for at most environment.helper_deadline, and fills in the
// CUDA members of `facts`. A helper that is missing, fails, prints nonsense or hangs (it is killed)
// is named in facts->cuda_problem.
void ask_cuda_helper(const Environment& environment, MachineFacts* facts);

}  // namespace opdock
