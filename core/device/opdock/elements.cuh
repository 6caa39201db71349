// Where the elements of an elementwise op's tensors lie: a kernel parameter, which host code fills
// in (opdock/elementwise_op.hpp) and CPU kernels use too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace opdock {

// Of a block, at most; each thread has one 16-byte vector of each tensor.
inline constexpr int kElementThreads = 512;

// The outputs come first. Where nothing stands against it, all rows are one.
template <int Tensors>
struct Elements {
  void* data[Tensors];  // null: the tensor is absent
  long long length;     // of a row, at least 1
  long long slots;      // vectors that a row's elements lie in, at most: a thread each
  int aligned;          // every row of every tensor begins at a multiple of 16 bytes
  int shift;            // with `factor` for a division by `slots`, which is slow otherwise
  unsigned long long factor;
  // Not 0: rows are whole vectors, evenly spaced, and this is how many there are in all. `factor`
  // is one of 32 bits, and vector i of all, in row r, is vector i + r * skip of a tensor.
  // For sums over rows: how many there are in a row, and vector i of row r is vector i + r * skip.
  // Of joined_elements.cuh: how many vectors the outputs are, all rows one after the other.
  // `factor` is one of 32 bits, to divide by `length`, and element i of all, in row r, is element i
  // + r * skip of a tensor, modulo 2^32.
  unsigned int vectors;
  unsigned int skip[Tensors];
  int unit;  // of joined_elements.cuh: bytes, 2 to 8, that lie in one row and are aligned
  Rows<Tensors> rows;
};

}  // namespace opdock
