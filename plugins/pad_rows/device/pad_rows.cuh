// Copies matrices into larger ones, by vectors of 16 bytes of these.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/elementwise.cuh"
#include "pad_rows_params.cuh"

namespace pad_rows {

using namespace opdock;

// A division of 32 bits is the quicker one: a thread has little else to do.
OPDOCK_DEVICE int64_t matrix_of(int64_t row, int64_t rows) {
  if (static_cast<uint64_t>(row | rows) >> 32 != 0) return row / rows;
  return static_cast<uint32_t>(row) / static_cast<uint32_t>(rows);
}

// T: whatever has as many bits. A thread has kParts vectors of its row of the result at a time.
template <class T>
OPDOCK_KERNEL(kThreads)
pad_rows(Params p) {
  constexpr int kSize = vector_size<T>;
  launch_turn();
  const int lanes = 1 << p.lane_bits, lane = thread_index() & (lanes - 1);
  const int64_t row = block_index() * (kThreads >> p.lane_bits) + (thread_index() >> p.lane_bits);
  if (row >= p.matrices.count * p.rows) return;
  const int64_t matrix = matrix_of(row, p.rows), place = row - matrix * p.rows;
  long long offset[1];
  p.matrices.locate(matrix, offset);
  const T* const from = static_cast<const T*>(p.x) + offset[0] + place * p.x_row_stride;
  T* const to = static_cast<T*>(p.out) + row * p.columns;
  const int64_t there = place < p.x_rows ? p.x_columns : 0;
  // The row begins inside of its first vector.
  const int64_t begin = lane * kSize - misalignment(to) / static_cast<int>(sizeof(T));
  for (int64_t first = begin; first < p.columns; first += kParts * kSize * lanes) {
    Packed<T> piece[kParts];
    OPDOCK_UNROLL
    for (int i = 0; i < kParts; ++i) {
      const int64_t column = first + i * kSize * lanes;
      if (column < p.columns) piece[i] = load_part(from + column, {column, there});
    }
    OPDOCK_UNROLL
    for (int i = 0; i < kParts; ++i) {
      const int64_t column = first + i * kSize * lanes;
      if (column < p.columns) store_part(to + column, {column, p.columns}, piece[i]);
    }
  }
}

}  // namespace pad_rows
