// The norms and their gradients on the CPU: what the plugin hands to the kernels.
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

struct BackwardJob {
  opdock_dtype dtype;
  double eps;
  BackwardParams params;
  opdock::ColumnSums<2> sums;  // of weight and bias: float, of float64 double
};

// Sums of [chunks, columns] numbers.
struct ColumnJob {
  opdock_dtype dtype;  // of out
  const void* partial;
  int64_t chunks, columns;
  void* out;
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))
OPDOCK_SIMD_DECLARE(
    // Rows begin … end - 1, and chunks of rows with their sums.
    void run_backward(const BackwardJob& job, int64_t begin, int64_t end);
    void run_backward_chunks(const BackwardJob& job, int64_t begin, int64_t end);
    // Columns begin … end - 1.
    void column_totals(const ColumnJob& job, int64_t begin, int64_t end))

}  // namespace layernorm
