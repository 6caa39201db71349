// Declares the CPU kernels of the steps between products, and the job that the plugin hands them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/activation_params.cuh"
#include "device/linear_params.cuh"
#include "opdock/pieces.hpp"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace linear {

struct ElementJob {
  opdock_dtype dtype;  // float32, float16 or bfloat16
  opdock::Pieces pieces;
  ElementParams params;
};

OPDOCK_SIMD_DECLARE(
    // Handle pieces begin … end - 1; pieces are counted over all rows, in order.
    void gate(const ElementJob& job, int64_t begin, int64_t end);
    void finish(const ElementJob& job, int64_t begin, int64_t end);)  // float32 only

}  // namespace linear
