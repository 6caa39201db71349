// Declares the CPU kernels of the norms and their gradients, and the jobs that the plugin hands
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/norm_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace layernorm {

struct Job {
  opdock_dtype dtype;  // float32, float16, bfloat16 or float64
  double eps;          // the eps to use, instead of params.eps
  Params params;
};

struct BackwardJob {
  opdock_dtype dtype;
  double eps;
  BackwardParams params;
  opdock::ColumnSums<2> sums;  // for weight and bias: float, or double for float64
};

// The sums over the chunks of [chunks, columns] numbers.
struct ColumnJob {
  opdock_dtype dtype;  // dtype of out
  const void* partial;
  int64_t chunks, columns;
  void* out;
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))
OPDOCK_SIMD_DECLARE(
    // Handle rows begin … end - 1, or chunks of rows and their sums.
    void run_backward(const BackwardJob& job, int64_t begin, int64_t end);
    void run_backward_chunks(const BackwardJob& job, int64_t begin, int64_t end);
    // Handles columns begin … end - 1.
    void column_totals(const ColumnJob& job, int64_t begin, int64_t end))

}  // namespace layernorm
