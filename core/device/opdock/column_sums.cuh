// Sums over rows, column by column (columns.cuh): the stage that adds up chunks beside an
// elementwise op, and the stage that adds up the chunks' sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/columns.cuh"
#include "opdock/elementwise.cuh"
#include "opdock/launch.cuh"

namespace opdock {

// An elementwise op on chunks of rows, and sums of what it computes. Calls f(row, in, out, terms)
// for the thread's vector in each of its rows: terms[s][k], float, are added to sum s of `Terms`.
// The rest is as for for_elements(), but outputs share no memory with inputs, and Out may name
// none. The kernel's launch is launch_column_chunks().
template <typename T, typename In, typename Out, int Terms, int Tensors, int Sums, typename F>
OPDOCK_DEVICE void for_column_chunks(const Elements<Tensors>& p, const ColumnSums<Sums>& sums,
                                     const F& f) {
  static_assert(Terms <= Sums, "each has its place among the sums");
  constexpr int kSize = vector_size<T>;
  OPDOCK_SHARED(float, scratch, kColumnThreads* kSize);
  // `lanes` threads lie side by side; each of these groups takes every height-th row.
  const int lanes = sums.lanes, height = kColumnThreads / lanes;
  const int64_t slot = block_index() * lanes + thread_index() % lanes;
  const int64_t begin = block_index_y() * sums.chunks.rows;
  const int64_t last = begin + sums.chunks.rows;
  const int64_t end = last < p.rows.count ? last : p.rows.count;
  RowPart<T, In, Out, Tensors> at = {p, {slot * kSize, p.length}, {}};
  const bool vectors = p.aligned && at.part.template is_whole<T>();
  float sum[Terms][kSize] = {};
  if (at.part.first < p.length) {
    for (int64_t row = begin + thread_index() / lanes; row < end; row += height) {
      at.locate(row);
      Packed<T> in[In::kCount], out[Out::kRoom];
      float terms[Terms][kSize];
      if (vectors) {
        at.load(true, in);
      } else {
        at.load(false, in);
      }
      f(row, in, out, terms);
      at.store(vectors, out);
      OPDOCK_UNROLL
      for (int s = 0; s < Terms; ++s) {
        if (!sums.partial[s]) continue;
        OPDOCK_UNROLL
        for (int k = 0; k < kSize; ++k) sum[s][k] += terms[s][k];
      }
    }
  }
  OPDOCK_UNROLL
  for (int s = 0; s < Terms; ++s) {
    if (!sums.partial[s]) continue;  // the same for all threads
    block_barrier();
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) scratch[thread_index() * kSize + k] = sum[s][k];
    block_barrier();
    for (int i = thread_index(); i < lanes * kSize; i += kColumnThreads) {
      const int64_t column = block_index() * lanes * kSize + i;
      if (column >= p.length) break;
      float total = 0.0f;
      for (int y = 0; y < height; ++y) total += scratch[y * lanes * kSize + i];
      static_cast<float*>(sums.partial[s])[block_index_y() * sums.columns + column] = total;
    }
  }
}

// The sums of the chunks' sums. The kernel is nothing else; its launch is launch_column_totals().
OPDOCK_DEVICE void column_totals(const ColumnTotals& p) {
  launch_turn();
  OPDOCK_SHARED(float, scratch, kTotalThreads);
  constexpr int kHeight = kTotalThreads / kTotalColumns, kAtOnce = 8;
  const int lane = thread_index() % kTotalColumns;
  const int64_t column = block_index() * kTotalColumns + lane;
  const bool second = block_index_y() != 0;
  float sum = 0.0f;
  if (column < p.columns) {
    const int first = thread_index() / kTotalColumns, chunks = static_cast<int>(p.chunks);
    const float* from = (second ? p.partial[1] : p.partial[0]) + first * p.columns + column;
    const int64_t step = kHeight * p.columns;
    for (int chunk = first; chunk < chunks; chunk += kHeight * kAtOnce) {
      float found[kAtOnce];
      OPDOCK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        found[i] = chunk + i * kHeight < chunks ? *from : 0.0f;
        from += step;
      }
      OPDOCK_UNROLL
      for (float each : found) sum += each;
    }
  }
  scratch[thread_index()] = sum;
  block_barrier();
  if (thread_index() >= kTotalColumns || column >= p.columns) return;
  for (int y = 1; y < kHeight; ++y) sum += scratch[y * kTotalColumns + lane];
  void* const out = second ? p.out[1] : p.out[0];
  if (p.element == 0) static_cast<float*>(out)[column] = sum;
  if (p.element == 1) static_cast<half*>(out)[column] = from_float<half>(sum);
  if (p.element == 2) static_cast<bfloat16*>(out)[column] = from_float<bfloat16>(sum);
}

}  // namespace opdock
