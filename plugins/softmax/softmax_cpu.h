// Softmax on the CPU: what the plugin hands to the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "opdock/rows.cuh"
#include "opdock/simd_level.hpp"

namespace softmax {

enum class Element { kFloat32, kFloat16, kBFloat16, kFloat64 };

struct Job {
  Element element;
  const void* x;
  const void* mask;   // NULL: none
  void* out;          // may be x
  int64_t length;     // of a row, at least 1
  int64_t mask_step;  // 1, or 0 where the mask's rows have one element
  double scale;
  bool causal;
  int64_t queries;       // causal: row r is query r % queries
  opdock::Rows<3> rows;  // x, mask, out
};

OPDOCK_SIMD_DECLARE(void run(const Job& job, int64_t begin, int64_t end))

}  // namespace softmax
