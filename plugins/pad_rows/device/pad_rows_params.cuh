// What the kernels take, filled in by pad_rows.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace pad_rows {

inline constexpr int kThreads = 128;  // of a block
inline constexpr int kParts = 4;      // vectors of 16 bytes that a thread loads before it stores

struct Params {
  const void* x;
  void* out;
  // Of the result, and of x, which begin at the same place.
  long long rows, columns;  // columns and strides in elements of the kernel, or in vectors
  long long x_rows, x_columns;
  long long x_row_stride;
  opdock::Rows<1> matrices;  // where those of x are
  long long slots;           // vectors that a row of the result touches, at most
  int lane_bits;             // of short rows: the logarithm of their vectors
};

}  // namespace pad_rows
