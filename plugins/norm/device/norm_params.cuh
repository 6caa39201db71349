// What the kernels take, on the GPU and on the CPU, filled in by norm.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace layernorm {

struct Params {
  const void* x;
  const void* residual;  // null: none, and no sum
  const void* weight;    // null: ones
  const void* bias;      // null: zeros
  void* out;             // may be x or residual
  void* sum;             // may be x or residual
  long long length;      // of a row, at least 1
  float eps;
  float share;  // 1 / length
  int centred;  // layer norm; 0: rms norm, whose mean counts as 0
  opdock::RowShape shape;
  opdock::Rows<4> rows;  // x, residual, out, sum
};

}  // namespace layernorm
