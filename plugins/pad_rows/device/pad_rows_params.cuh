// Parameters of the kernels, filled in by pad_rows.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace pad_rows {

inline constexpr int kThreads = 128;  // threads per block
inline constexpr int kParts = 4;      // vectors of 16 bytes that a thread loads before it stores

struct Params {
  const void* x;
  void* out;
  // Sizes of the result's matrices, and of x's, which are copied to their upper left corner.
  // Columns and strides count the kernel's elements, or vectors.
  long long rows, columns;
  long long x_rows, x_columns;
  long long x_row_stride;
  opdock::Rows<1> matrices;  // where the matrices of x lie
  long long slots;           // upper bound of the vectors that a row of the result touches
  int lane_bits;             // for short rows: the base-2 logarithm of their number of vectors
};

}  // namespace pad_rows
