// What the kernels take, on the GPU and on the CPU, filled in by the host part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/columns.cuh"
#include "opdock/elements.cuh"

namespace layernorm {

// (x - mean) * factor + rest is the normalised element.
struct Moments {
  float mean, factor, rest;
};

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

// Of the gradients' kernels, filled in by norm_backward.cc: those of rows …
struct BackwardParams {
  const void* x;  // what was normalised
  const void* grad;
  const void* grad_sum;  // what is added to the gradient of x; null: nothing
  const void* weight;    // null: ones
  void* out;             // the gradient of x
  Moments* moments;      // of each row, for what follows; null: nothing does
  long long length;      // of a row, at least 1
  float eps;
  float share;  // 1 / length
  int centred;
  opdock::RowShape shape;
  opdock::Rows<4> rows;  // x, grad, out, grad_sum
};

// … and those of weight and bias, sums over rows.
struct WeightParams {
  opdock::Elements<2> at;      // grad, x
  opdock::ColumnSums<2> sums;  // weight, bias
  const Moments* moments;      // of each row; on the CPU null
};

}  // namespace layernorm
