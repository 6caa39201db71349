// Parameters of the kernels, on the GPU and on the CPU, filled in by the host code.
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
  const void* residual;    // null: no residual, and no sum
  const void* input_bias;  // as long as a row, added to each sum; null: none
  const void* weight;      // null: ones
  const void* bias;        // null: zeros
  void* out;               // may be x or residual
  void* sum;               // may be x or residual; equal to out: the sum is not wanted
  long long length;        // elements of a row, at least 1
  float eps;
  float share;  // 1 / length
  int centred;  // 1: layer norm; 0: rms norm, whose mean counts as 0
  opdock::RowShape shape;
  opdock::Rows<4> rows;  // x, residual, out, sum
};

// Parameters of the kernels that compute the gradient of x row by row, filled in by
// norm_backward.cc.
struct BackwardParams {
  const void* x;  // the tensor that was normalised
  const void* grad;
  const void* grad_sum;  // added to the gradient of x; null: nothing is added
  const void* weight;    // null: ones
  void* out;             // the gradient of x
  Moments* moments;      // each row's moments, for weight_sums; null: not needed
  long long length;      // elements of a row, at least 1
  float eps;
  float share;  // 1 / length
  int centred;
  opdock::RowShape shape;
  opdock::Rows<4> rows;  // x, grad, out, grad_sum
};

// Parameters of the kernels that compute all gradients at once (norm_backward_loop.cuh). Their
// `moments` is null.
struct LoopParams : BackwardParams {
  float* sums[2];  // sums of each chunk for weight and bias, [chunks, length]; null: not wanted
  int team_warps;  // warps of a block that share a row, or a slice of it
  int slice;  // elements of a row that each block of a cluster has; the last block may have fewer
};
inline constexpr int kLoopThreads = 512;  // upper bound of the threads of their blocks
inline constexpr int kLoopElements = 16;  // elements of a row that a thread has
inline constexpr int kLoopScratch =
    1024;  // bytes of a block's shared memory in addition to loop_room() per thread
// Number of rows that have copies in shared memory, for elements of so many bytes. Where the blocks
// of a cluster wait for each other, more copies are in flight meanwhile.
OPDOCK_HOST_DEVICE constexpr int loop_stages(int bytes, bool clusters) {
  return clusters && bytes == 2 ? 3 : 2;
}
// Bytes of shared memory per thread: copies of the elements of so many tensors, of so many bytes
// each, and weights in float.
OPDOCK_HOST_DEVICE constexpr int loop_room(int bytes, int tensors, bool clusters) {
  return kLoopElements *
         (bytes * tensors * loop_stages(bytes, clusters) + static_cast<int>(sizeof(float)));
}

// Parameters of the kernel that sums the gradients of weight and bias over rows.
struct WeightParams {
  opdock::Elements<2> at;      // grad, x
  opdock::ColumnSums<2> sums;  // weight, bias
  const Moments* moments;      // each row's moments; null on the CPU
};

}  // namespace layernorm
