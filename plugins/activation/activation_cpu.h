// Declares the CPU kernels of the activations' gradients, and the jobs that the plugin hands them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/activation_params.cuh"
#include "opdock/pieces.hpp"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace activation {

using opdock::kElementGrain;
using opdock::Pieces;

struct BackwardJob {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  Pieces pieces;
  BackwardParams params;  // the chunks' sums are float, or double for float64
  const void* partial;    // the chunks' sums: [chunks, columns]; null: none
  void* totals;           // [columns]
};

OPDOCK_SIMD_DECLARE(
    // Handles pieces begin … end - 1; pieces are counted over all rows, in order.
    void backward(const BackwardJob& job, int64_t begin, int64_t end);
    // Handles pieces of the chunks, in the order of chunks.
    void backward_sums(const BackwardJob& job, int64_t begin, int64_t end);
    // Handles columns begin … end - 1 of the totals.
    void column_totals(const BackwardJob& job, int64_t begin, int64_t end))

}  // namespace activation
