// Declares the CPU kernel of cross entropy, and the job that the plugin hands it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/cross_entropy_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace cross_entropy {

struct Job {
  opdock_dtype dtype;    // float32, float16, bfloat16 or float64
  double smoothing;      // the smoothing to use, instead of params.smoothing
  bool is_double_loss;   // params.loss holds doubles
  bool is_double_scale;  // params.scale holds doubles
  Params params;
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))

}  // namespace cross_entropy
