// What the kernels take, on the GPU and on the CPU, filled in by norm.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace layernorm {

struct Params {
  const void* x;
  const void* residual;  // null: none, and then sum is null too
  const void* weight;    // null: ones
  const void* bias;      // null: zeros
  void* out;             // may be x or residual
  void* sum;             // may be x or residual
  long long length;      // of a row, at least 1
  float eps;
  int centred;           // 1: layer norm; 0: rms norm, which subtracts no mean
  opdock::Rows<4> rows;  // x, residual, out, sum
};

}  // namespace layernorm
