// Copies matrices into larger ones, by units of as many bytes as all rows are made of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/vector.cuh"
#include "pad_rows_params.cuh"

namespace pad_rows {

using namespace opdock;

// A division of 32 bits is the quicker one: a thread has little else to do.
OPDOCK_DEVICE int64_t matrix_of(int64_t row, int64_t rows) {
  if (static_cast<uint64_t>(row | rows) >> 32 != 0) return row / rows;
  return static_cast<uint32_t>(row) / static_cast<uint32_t>(rows);
}

template <int Bytes>
OPDOCK_KERNEL(kThreads)
pad_rows(Params p) {
  launch_turn();
  const int lanes = 1 << p.lane_bits, lane = thread_index() & (lanes - 1);
  const int64_t row = block_index() * (kThreads >> p.lane_bits) + (thread_index() >> p.lane_bits);
  if (row >= p.matrices.count * p.rows) return;
  const int64_t matrix = matrix_of(row, p.rows), place = row - matrix * p.rows;
  long long offset[1];
  p.matrices.locate(matrix, offset);
  const char* const from = p.x + (offset[0] + place * p.x_row_stride) * Bytes;
  char* const to = p.out + row * p.columns * Bytes;
  const int64_t there = place < p.x_rows ? p.x_columns : 0;
  for (int64_t i = lane; i < p.columns; i += lanes) {
    Unit<Bytes> unit = {};
    if (i < there) unit = load_unit<Bytes>(from + i * Bytes);
    store_unit<Bytes>(to + i * Bytes, unit);
  }
}

}  // namespace pad_rows
