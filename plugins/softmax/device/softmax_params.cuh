// What the kernels take, on the GPU and on the CPU, filled in by softmax.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace softmax {

struct Params {
  const void* x;
  const void* mask;     // null: none
  void* out;            // may be x
  long long length;     // of a row, at least 1
  long long mask_step;  // 1, or 0 where the mask's rows have one element
  long long queries;    // causal: row r is query r % queries
  float scale;
  int causal;
  int log;               // 1: the logarithm of the softmax
  opdock::Rows<3> rows;  // x, mask, out
};

}  // namespace softmax
