// Copies matrices into larger ones, in vectors of 16 bytes of the larger ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/elementwise.cuh"
#include "pad_rows_params.cuh"

namespace pad_rows {

using namespace opdock;

// Divides in 32 bits where possible, which is faster; a thread has little else to do.
OPDOCK_DEVICE int64_t quotient(int64_t number, int64_t by) {
  if (static_cast<uint64_t>(number | by) >> 32 != 0) return number / by;
  return static_cast<uint32_t>(number) / static_cast<uint32_t>(by);
}

// A vector of the result.
template <class T>
struct Target {
  T* to = nullptr;  // NULL: the vector lies outside the result
  Part part;

  // Locates vector number `number` of the result, with p.slots vectors per row, and loads the
  // elements that are copied into it.
  OPDOCK_DEVICE Packed<T> load(const Params& p, int64_t number) {
    const int64_t row = quotient(number, p.slots);
    if (row >= p.matrices.count * p.rows) return {};
    T* const begin = static_cast<T*>(p.out) + row * p.columns;
    // The row begins somewhere inside its first vector.
    const int64_t column = (number - row * p.slots) * vector_size<T> -
                           misalignment(begin) / static_cast<int>(sizeof(T));
    if (column >= p.columns) return {};
    to = begin + column;
    part = {column, p.columns};
    const int64_t matrix = quotient(row, p.rows), place = row - matrix * p.rows;
    long long offset[1];
    p.matrices.locate(matrix, offset);
    const T* const from = static_cast<const T*>(p.x) + offset[0] + place * p.x_row_stride;
    return load_part(from + column, {column, place < p.x_rows ? p.x_columns : 0});
  }
};

// T is any type of the elements' size. A thread copies kParts vectors, one block's width apart.
template <class T>
OPDOCK_KERNEL(kThreads)
pad_rows(Params p) {
  pdl_wait_and_trigger();
  const int64_t first = block_index() * (kParts * kThreads) + thread_index();
  Target<T> target[kParts];
  Packed<T> piece[kParts];
  OPDOCK_UNROLL
  for (int i = 0; i < kParts; ++i) piece[i] = target[i].load(p, first + i * kThreads);
  OPDOCK_UNROLL
  for (int i = 0; i < kParts; ++i)
    if (target[i].to != nullptr) store_part(target[i].to, target[i].part, piece[i]);
}

// Handles short rows that, like all other sizes, consist of whole vectors. A row has as many
// threads as vectors, so that locating it takes fewer divisions and there are no partial vectors.
OPDOCK_KERNEL(kThreads) short_rows(Params p) {
  pdl_wait_and_trigger();
  const int lane = thread_index() & ((1 << p.lane_bits) - 1);
  const int64_t row = block_index() * (kThreads >> p.lane_bits) + (thread_index() >> p.lane_bits);
  if (row >= p.matrices.count * p.rows) return;
  const int64_t matrix = quotient(row, p.rows), place = row - matrix * p.rows;
  long long offset[1];
  p.matrices.locate(matrix, offset);
  Bytes16 vector = {};
  if (place < p.x_rows && lane < p.x_columns)
    vector = load16(static_cast<const Bytes16*>(p.x) + offset[0] + place * p.x_row_stride + lane);
  store16(static_cast<Bytes16*>(p.out) + row * p.columns + lane, vector);
}

}  // namespace pad_rows
