// Sums over rows in the kernels of formulas, in two stages with a fixed order of additions: a
// kernel adds up chunks of rows while it computes them, and a second launch adds up the chunks'
// sums. core/formula/device_source.cc writes the kernels, and core/formula/device_launch.cc fills
// in their parameters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/columns.cuh"
#include "opdock/formula.cuh"

namespace opdock::formula {

// Adds up sum[k], the columns of each thread's vector, over the threads of a block that have the
// same vector: every lanes-th of kColumnThreads. Writes the totals to the chunk's partial sums.
template <int V, class Number>
OPDOCK_DEVICE void store_column_sums(const Number (&sum)[V], int lanes, int64_t columns,
                                     Number* partial) {
  // The elements k of all threads are adjacent, with a stride between them that avoids bank
  // conflicts in a warp, which reads all k of some threads.
  constexpr int kStep = kColumnThreads + 32 / V;
  OPDOCK_SHARED(Number, scratch, kStep * V);
  block_barrier();
  OPDOCK_UNROLL
  for (int k = 0; k < V; ++k) scratch[k * kStep + thread_index()] = sum[k];
  block_barrier();
  const int height = kColumnThreads / lanes;
  for (int i = thread_index(); i < lanes * V; i += kColumnThreads) {
    const int64_t column = block_index() * lanes * V + i;
    if (column >= columns) break;
    Number total = 0;
    for (int y = 0; y < height; ++y) total += scratch[i % V * kStep + y * lanes + i / V];
    partial[column] = total;
  }
}

// Adds one row to the partial sums of a chunk, or begins them. For rows that are too long for
// registers: each thread has the same columns in all rows of the chunk.
template <int V, class Number>
OPDOCK_DEVICE void add_to_partial(Number* partial, int64_t column, int count, bool begins,
                                  const Number (&row)[V]) {
  OPDOCK_UNROLL
  for (int k = 0; k < V; ++k)
    if (k < count) partial[column + k] = begins ? row[k] : partial[column + k] + row[k];
}

// Writes a thread's vector of sums.
template <int V, class Number>
OPDOCK_DEVICE void store_partial(Number* partial, int64_t column, int count, const Number* sum) {
  OPDOCK_UNROLL
  for (int k = 0; k < V; ++k)
    if (k < count) partial[column + k] = sum[k];
}

// Adds up the partial sums of result `s`: of kTotalColumns columns in each block of kTotalThreads.
template <class Number, class Element, int N>
OPDOCK_DEVICE void add_partial_sums(const PartialSums<N>& p, int s) {
  OPDOCK_SHARED(Number, scratch, kTotalThreads);
  constexpr int kAtOnce = 8;
  const int64_t columns = p.columns[s], parts = p.parts[s];
  // All threads of a block add up a total.
  const int lanes = columns == 1 ? 1 : kTotalColumns;
  const int height = kTotalThreads / lanes;
  const int64_t column = block_index() * lanes + thread_index() % lanes;
  Number sum = 0;
  if (column < columns) {
    const Number* const from = static_cast<const Number*>(p.partial[s]) + column;
    for (int64_t part = thread_index() / lanes; part < parts; part += height * kAtOnce) {
      Number found[kAtOnce];
      OPDOCK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t at = part + i * height;
        found[i] = at < parts ? from[at * columns] : Number(0);
      }
      OPDOCK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum += found[i];
    }
  }
  Element* const out = static_cast<Element*>(p.out[s]);
  if (columns == 1) {
    OPDOCK_SHARED(long long, warps, 64);
    sum = RowTeam<true, kTotalThreads>().template reduce<SumOf>(sum, warps);
    if (column == 0 && thread_index() == 0) out[0] = ToElement<Element>::of(sum);
    return;
  }
  scratch[thread_index()] = sum;
  block_barrier();
  if (thread_index() >= lanes || column >= columns) return;
  for (int y = 1; y < height; ++y) sum += scratch[y * lanes + thread_index()];
  out[column * p.step[s]] = ToElement<Element>::of(sum);
}

}  // namespace opdock::formula
