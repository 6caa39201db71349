// Sums over rows, column by column (columns.cuh): the stage that adds up chunks of rows during an
// elementwise op, and the stage that adds up the chunks' sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/columns.cuh"
#include "opdock/elementwise.cuh"
#include "opdock/launch.cuh"

namespace opdock {

// Adds up sum[s], the columns of each thread's vector, over the threads of a block that have the
// same vector, and writes the totals to the chunk's place among the partial sums.
template <int Terms, int Size, int Sums>
OPDOCK_DEVICE void store_column_sums(const ColumnSums<Sums>& sums, int64_t length,
                                     const float (&sum)[Terms][Size]) {
  // The elements k of all threads are adjacent, with a stride between them that avoids bank
  // conflicts in a warp, which reads all k of some threads.
  constexpr int kStep = kColumnThreads + 32 / Size;
  OPDOCK_SHARED(float, scratch, kStep* Size);
  const int lanes = sums.lanes, height = kColumnThreads / lanes;
  OPDOCK_UNROLL
  for (int s = 0; s < Terms; ++s) {
    if (!sums.partial[s]) continue;  // the same for all threads
    block_barrier();
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) scratch[k * kStep + thread_index()] = sum[s][k];
    block_barrier();
    for (int i = thread_index(); i < lanes * Size; i += kColumnThreads) {
      const int64_t column = block_index() * lanes * Size + i;
      if (column >= length) break;
      float total = 0.0f;
      for (int y = 0; y < height; ++y) total += scratch[i % Size * kStep + y * lanes + i / Size];
      static_cast<float*>(sums.partial[s])[block_index_y() * sums.columns + column] = total;
    }
  }
}

// Does an elementwise op on chunks of rows, and sums what it computes. Calls f(row, in, side, out,
// terms) for the thread's vector in each of its rows; terms[s][k], a float, is added to sum s of
// `Terms`. Side: the indices of inputs without rows, such as a bias. Everything else is as for
// for_elements(), except that outputs share no memory with inputs, and that Out may be empty.
// launch_column_chunks() launches the kernel.
template <typename T, typename In, typename Side, typename Out, int Terms, int Tensors, int Sums,
          typename F>
OPDOCK_DEVICE void for_column_chunks(const Elements<Tensors>& p, const ColumnSums<Sums>& sums,
                                     const F& f) {
  static_assert(Terms <= Sums, "each has its place among the sums");
  constexpr int kSize = vector_size<T>;
  constexpr int kAtOnce = 2;  // rows that a thread loads before it computes
  // Groups of `lanes` adjacent threads share a row; each group takes every height-th row.
  const int lanes = sums.lanes, height = kColumnThreads / lanes;
  const int64_t slot = block_index() * lanes + thread_index() % lanes;
  const int64_t begin = block_index_y() * sums.chunks.rows;
  const int64_t last = begin + sums.chunks.rows;
  const int64_t end = last < p.rows.count ? last : p.rows.count;
  float sum[Terms][kSize] = {};
  const auto add = [&](const float (&terms)[Terms][kSize]) {
    OPDOCK_UNROLL
    for (int s = 0; s < Terms; ++s) {
      OPDOCK_UNROLL
      for (int k = 0; k < kSize; ++k) sum[s][k] += terms[s][k];
    }
  };
  Packed<T> side[Side::kRoom], out[Out::kRoom];
  float terms[Terms][kSize];
  if (p.vectors != 0) {
    const uint32_t vector = static_cast<uint32_t>(slot), stop = static_cast<uint32_t>(end);
    const auto at = [&](int tensor, uint32_t row) {
      const uint64_t found = vector + row * p.skip[tensor];
      return static_cast<T*>(p.data[tensor]) + found * kSize;
    };
    if (vector < p.vectors) {
      for_each_tensor<Side, 0>(p, [&](int tensor, int i) { load_piece(at(tensor, 0), &side[i]); });
      uint32_t row = static_cast<uint32_t>(begin + thread_index() / lanes);
      for (; row < stop; row += kAtOnce * height) {
        Packed<T> in[kAtOnce][In::kCount];
        OPDOCK_UNROLL
        for (int r = 0; r < kAtOnce; ++r) {
          // Behind the last row, the last row is loaded again, so that there is no branch between
          // the loads.
          const uint32_t from = row + r * height < stop ? row + r * height : stop - 1;
          for_each_tensor<In>(p,
                              [&](int tensor, int i) { load_piece(at(tensor, from), &in[r][i]); });
        }
        OPDOCK_UNROLL
        for (int r = 0; r < kAtOnce; ++r) {
          const uint32_t to = row + r * height;
          if (to >= stop) break;
          f(to, in[r], side, out, terms);
          for_each_tensor<Out>(p, [&](int tensor, int i) { store_piece(at(tensor, to), out[i]); });
          add(terms);
        }
      }
    }
  } else if (slot * kSize < p.length) {
    RowPart<T, Tensors> part = {p, {slot * kSize, p.length}, {}};
    for (int64_t row = begin + thread_index() / lanes; row < end; row += height) {
      part.locate(row);
      Packed<T> in[In::kRoom];
      part.template load<In>(false, in);
      for_each_tensor<Side, 0>(
          p, [&](int tensor, int i) { side[i] = load_part(part.at[tensor], part.part); });
      f(row, in, side, out, terms);
      part.template store<Out>(false, out);
      add(terms);
    }
  }
  store_column_sums(sums, p.length, sum);
}

// Adds up the chunks' sums. A kernel consists of only this call; launch_column_totals() launches
// it.
OPDOCK_DEVICE void column_totals(const ColumnTotals& p) {
  pdl_wait_and_trigger();
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
