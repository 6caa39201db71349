// Layer and rms normalisation on the CPU: what the plugin hands to the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/norm_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace layernorm {

struct Job {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  double eps;          // what is used, not params.eps
  Params params;
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))

}  // namespace layernorm
