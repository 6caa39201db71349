// Copies matrices into larger ones, by units of as many bytes as all rows are made of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/vector.cuh"
#include "pad_rows_params.cuh"

namespace pad_rows {

using namespace opdock;

template <int Bytes>
OPDOCK_KERNEL(kThreads)
pad_rows(Params p) {
  launch_turn();
  const int lane = static_cast<int>(thread_index()) & (p.lanes - 1);
  const int64_t row = block_index() * (kThreads / p.lanes) + thread_index() / p.lanes;
  if (row >= p.matrices.count * p.rows) return;
  const int64_t matrix = row / p.rows, place = row - matrix * p.rows;
  long long offset[1];
  p.matrices.locate(matrix, offset);
  const char* const from = p.x + (offset[0] + place * p.x_row_stride) * Bytes;
  char* const to = p.out + row * p.columns * Bytes;
  const int64_t there = place < p.x_rows ? p.x_columns : 0;
  for (int64_t i = lane; i < p.columns; i += p.lanes) {
    Unit<Bytes> unit = {};
    if (i < there) unit = load_unit<Bytes>(from + i * Bytes);
    store_unit<Bytes>(to + i * Bytes, unit);
  }
}

}  // namespace pad_rows
