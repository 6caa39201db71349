// The ops on the CPU: what the plugin hands to the kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/residual_params.cuh"
#include "opdock/pieces.hpp"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace residual {

struct Job {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  double factor;       // what is used, not params.factor
  opdock::Pieces pieces;
  Params params;
};

// Of all rows' pieces, in their order, those from begin to end - 1.
OPDOCK_SIMD_DECLARE(void combine(const Job& job, int64_t begin, int64_t end))

}  // namespace residual
