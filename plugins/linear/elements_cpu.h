// What stands between products on the CPU: what the plugin hands to the kernels.
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
    // Of all rows' pieces, in their order, those from begin to end - 1.
    void gate(const ElementJob& job, int64_t begin, int64_t end);
    void finish(const ElementJob& job, int64_t begin, int64_t end);)  // of float32

}  // namespace linear
