// Declares the CPU kernel of the ops, and the job that the plugin hands it.
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
  double factor;       // the factor to use, instead of params.factor
  opdock::Pieces pieces;
  Params params;
};

// Computes pieces begin … end - 1; pieces are counted over all rows, in order.
OPDOCK_SIMD_DECLARE(void combine(const Job& job, int64_t begin, int64_t end))

}  // namespace residual
