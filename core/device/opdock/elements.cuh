// Describes where the elements of an elementwise op's tensors lie: a kernel parameter, which host
// code fills in (opdock/elementwise_op.hpp) and CPU kernels use too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace opdock {

// The most threads of a block. Each thread has one 16-byte vector of each tensor.
inline constexpr int kElementThreads = 512;

// The outputs come first. All rows are merged into one where the layout allows it.
template <int Tensors>
struct Elements {
  void* data[Tensors];  // null: the tensor is absent
  long long length;     // of a row, at least 1
  long long slots;      // vectors that a row's elements lie in, at most; each has a thread
  int aligned;          // every row of every tensor begins at a multiple of 16 bytes
  int shift;            // with `factor`, for a fast division by `slots`
  unsigned long long factor;
  // If not 0, rows are whole vectors, evenly spaced, and this is the number of all vectors.
  // `factor` then has 32 bits, and vector i of all, in row r, is vector i + r * skip of a tensor.
  // For sums over rows, this is the number of vectors in a row, and vector i of row r is vector i +
  // r * skip of a tensor.
  // For joined_elements.cuh, this is the number of vectors of an output, with all rows one after
  // the other. `factor` then has 32 bits and divides by `length`, and element i of all, in row r,
  // is element i + r * skip of a tensor, modulo 2^32.
  unsigned int vectors;
  unsigned int skip[Tensors];
  int unit;  // for joined_elements.cuh: bytes, 2 to 8, that lie in one row and are aligned
  Rows<Tensors> rows;
};

}  // namespace opdock
