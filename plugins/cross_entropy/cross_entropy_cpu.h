// Cross entropy on the CPU: what the plugin hands to the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/cross_entropy_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace cross_entropy {

struct Job {
  opdock_dtype dtype;    // float32, float16, bfloat16 or float64
  double smoothing;      // what is used, not params.smoothing
  bool is_double_loss;   // params.loss is of doubles
  bool is_double_scale;  // params.scale is
  Params params;
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))

}  // namespace cross_entropy
