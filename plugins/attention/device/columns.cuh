// Single queries over keys that lie by columns, [element, token]. A block has one row and a part of
// the keys; each thread takes some of its tokens. Keys and values are read once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/packed.cuh"
#include "opdock/reduce.cuh"
#include "rows.cuh"

namespace attention {

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(kColumnThreads, 2)
columns(Params p) {
  pdl_wait_and_trigger();
  constexpr int kPiece = vector_size<T>;
  constexpr int kKeys = 32 * kPiece;  // keys handled at a time
  constexpr int kGroups =
      kColumnThreads / 32;                 // groups of threads: each has a share of the elements
  constexpr int kMembers = Size / kPiece;  // threads that share a value
  constexpr int kValues = kColumnThreads / kMembers;  // values handled at a time
  OPDOCK_SHARED(float, q, Size);
  OPDOCK_SHARED(float, shared, kColumnThreads* kPiece);
  OPDOCK_SHARED(float, weights, kKeys);
  OPDOCK_SHARED(float, scratch, kColumnThreads / 32);
  const int thread = thread_index(), member = thread % 32, group = thread / 32;
  const int first_value = thread / kMembers, element = thread % kMembers * kPiece;
  const int index = static_cast<int>(block_index());
  const int number = index / p.splits, split = index - number * p.splits;
  const Block block = Batches::rows(p, number, 1, split);
  const Row row(p, block, 0);
  const T* const query = static_cast<const T*>(p.q.data) + p.q.at(block.batch, row.query, row.head);
  for (int i = thread; i < Size; i += kColumnThreads)
    q[i] = i < p.size ? to_float(query[i]) * p.scale : 0.0f;
  block_barrier();

  const T* const keys = static_cast<const T*>(p.k.data) + p.k.at(block.key_batch, 0, block.head);
  const T* const values = static_cast<const T*>(p.v.data) + p.v.at(block.key_batch, 0, block.head);
  const bool has_added = p.mask.data || p.bias.data || p.slopes;
  const int seen = row.first < block.first ? block.first : row.first;
  float most = -infinity(), sum = 0, out[kPiece] = {};
  for (int base = block.first / kPiece * kPiece; base < block.end; base += kKeys) {
    const int own = base + member * kPiece;
    float score[kPiece] = {};
    OPDOCK_UNROLL
    for (int i = 0; i < Size / kGroups; ++i) {
      const int e = group + i * kGroups;
      Packed<T> piece = {};
      if (e < p.size && own < p.keys) load_piece(keys + e * p.key_element + own, &piece);
      float value[kPiece];
      to_floats(piece, value);
      OPDOCK_UNROLL
      for (int j = 0; j < kPiece; ++j) score[j] = opdock::fma(q[e], value[j], score[j]);
    }
    OPDOCK_UNROLL
    for (int j = 0; j < kPiece; ++j) shared[group * kKeys + member * kPiece + j] = score[j];
    block_barrier();
    float one = -infinity();
    const int key = base + thread;
    if (thread < kKeys && key >= seen && key < row.end) {
      one = 0;
      OPDOCK_UNROLL
      for (int i = 0; i < kGroups; ++i) one += shared[i * kKeys + thread];
      if (has_added) one = RowAdded<T>(p, block, row)(p, one, key);
    }
    const float now = opdock::max(most, block_reduce<Max>(one, scratch));
    const float factor = weight(most, now);
    most = now;
    one = weight(one, now);
    sum = opdock::fma(sum, factor, one);
    if (thread < kKeys) weights[thread] = one;
    block_barrier();
    OPDOCK_UNROLL
    for (float& each : out) each *= factor;
    OPDOCK_UNROLL
    for (int i = 0; i < kKeys; i += kValues) {
      const int at = base + first_value + i;
      Packed<T> piece = {};
      if (at >= block.first && at < block.end && element < p.size)
        load_piece(values + at * p.v.token + element, &piece);
      float value[kPiece];
      to_floats(piece, value);
      OPDOCK_UNROLL
      for (int j = 0; j < kPiece; ++j)
        out[j] = opdock::fma(weights[first_value + i], value[j], out[j]);
    }
  }

  // Combines the threads of a warp that have the same elements; finish_rows() combines the warps.
  constexpr int kParts = kMembers < warp_width() ? kColumnThreads / warp_width() : kValues;
  OPDOCK_SHARED(float, stats, 2 * kParts);
  OPDOCK_UNROLL
  for (int mask = kMembers; mask < warp_width(); mask *= 2) {
    OPDOCK_UNROLL
    for (float& each : out) each += shuffle_xor(each, mask);
  }
  sum = block_reduce<Sum>(sum, scratch);
  const int part = kMembers < warp_width() ? thread / warp_width() : first_value;
  if (kMembers >= warp_width() || thread % warp_width() < kMembers) {
    OPDOCK_UNROLL
    for (int j = 0; j < kPiece; ++j) shared[part * Size + element + j] = out[j];
    if (element == 0) {
      stats[2 * part] = most;
      stats[2 * part + 1] = part == 0 ? sum : 0.0f;
    }
  }
  block_barrier();
  finish_rows<T, Size>(p, block, split, kParts, stats, shared, 1);
}

}  // namespace attention
