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
  const void* residual;    // null: none, and no sum
  const void* input_bias;  // of a row's length, added to each sum; null: none
  const void* weight;      // null: ones
  const void* bias;        // null: zeros
  void* out;               // may be x or residual
  void* sum;               // may be x or residual; out: the sum is not wanted
  long long length;        // of a row, at least 1
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

// Of the kernels that compute all gradients at once (norm_backward_loop.cuh): moments is null.
struct LoopParams : BackwardParams {
  float* sums[2];  // of the chunks' weight and bias, [chunks, length]; null: not wanted
  int team_warps;  // of a block that share a row, or a slice of it
  int slice;       // elements of a row that each block of a cluster has, the last one fewer
};
inline constexpr int kLoopThreads = 512;   // of their blocks, at most
inline constexpr int kLoopElements = 16;   // of a row that a thread has
inline constexpr int kLoopScratch = 1024;  // bytes of a block's shared memory beside its threads'
// Rows of which there are copies, of elements of so many bytes: where blocks of a cluster wait for
// each other, more are on their way meanwhile.
OPDOCK_HOST_DEVICE constexpr int loop_stages(int bytes, bool clusters) {
  return clusters && bytes == 2 ? 3 : 2;
}
// A thread's bytes of shared memory: copies of so many tensors' elements, of so many bytes each,
// and weights in float.
OPDOCK_HOST_DEVICE constexpr int loop_room(int bytes, int tensors, bool clusters) {
  return kLoopElements *
         (bytes * tensors * loop_stages(bytes, clusters) + static_cast<int>(sizeof(float)));
}

// … and those of weight and bias, sums over rows.
struct WeightParams {
  opdock::Elements<2> at;      // grad, x
  opdock::ColumnSums<2> sums;  // weight, bias
  const Moments* moments;      // of each row; on the CPU null
};

}  // namespace layernorm
