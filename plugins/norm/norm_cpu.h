// Layer normalisation on the CPU: what the plugin hands to the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "opdock/rows.cuh"
#include "opdock/simd_level.hpp"

namespace layernorm {

enum class Element { kFloat32, kFloat16, kBFloat16, kFloat64 };

struct Job {
  Element element;
  const void* x;
  const void* residual;  // NULL: none, and then sum is NULL too
  const void* weight;    // NULL: ones
  const void* bias;      // NULL: zeros
  void* out;             // may be x or residual
  void* sum;             // may be x or residual
  int64_t length;        // of a row, at least 1
  double eps;
  opdock::Rows<4> rows;  // x, residual, out, sum
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))

}  // namespace layernorm
