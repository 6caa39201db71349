// Declares the CPU kernels of softmax and its gradient, and the jobs that the plugin hands them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/softmax_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace softmax {

struct Job {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  double scale;        // the scale to use, instead of params.scale
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
