// Parameters of the kernels, on the GPU and on the CPU, filled in by softmax.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace softmax {

inline constexpr float kLog2E = 1.44269504f;

// Returns the number of the query that the row belongs to. Divides in 32 bits where possible, which
// is faster.
OPDOCK_HOST_DEVICE long long query_of(long long row, long long queries) {
  if ((static_cast<unsigned long long>(row | queries) >> 32) != 0) return row % queries;
  return static_cast<unsigned int>(row) % static_cast<unsigned int>(queries);
}

struct Params {
  const void* x;
  const void* mask;     // null: no mask
  void* out;            // may be x
  long long length;     // elements of a row, at least 1
  long long mask_step;  // 1, or 0 where the mask has one element per row
  long long queries;    // causal: row r is query r % queries
  float scale;
  int causal;
  int log;       // whether this is log_softmax
  int is_plain;  // no mask, and scale * kLog2E is above 0, finite and not subnormal
  opdock::RowShape shape;
  opdock::Rows<3> rows;  // x, mask, out
};

// Parameters of the gradients' kernels, filled in by softmax_backward.cc.
struct BackwardParams {
  const void* grad;    // gradient of the result
  const void* result;  // result of softmax or log_softmax
  void* out;           // may be grad or result
  long long length;    // elements of a row, at least 1
  long long queries;   // causal: row r is query r % queries
  float scale;
  int causal;
  int log;           // whether this is log_softmax's gradient
  int is_broadcast;  // a row of grad is one element, which applies to the whole row
  opdock::RowShape shape;
  opdock::Rows<3> rows;  // grad, result, out
};

}  // namespace softmax
