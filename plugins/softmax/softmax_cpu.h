// Softmax and its gradient on the CPU: what the plugin hands to the kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/softmax_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace softmax {

struct Job {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  double scale;        // what is used, not params.scale
  Params params;
};

struct BackwardJob {
  opdock_dtype dtype;
  double scale;
  BackwardParams params;
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))
OPDOCK_SIMD_DECLARE(void run_backward(const BackwardJob& job, int64_t begin, int64_t end))

}  // namespace softmax
