// Attention without tensor cores, for any rows and elements: for float, for GPUs without tensor
// cores, and for tensors of any alignment. Eight lanes take a key at a time; each has an eighth of
// its elements.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache.cuh"
#include "drop.cuh"
#include "opdock/packed.cuh"
#include "rows.cuh"

namespace attention {

inline constexpr int kTeam = 8;

// A lane's elements of a head, as floats: piece i of vector_size<T> elements begins at element (8 i
// + member) * vector_size<T>. Elements beyond the head's size are 0.
template <class T, int Size>
struct Share {
  static constexpr int kPiece = vector_size<T>;
  static constexpr int kPieces = Size / (kTeam * kPiece);
  float at[kPieces * kPiece];

  OPDOCK_DEVICE void clear() {
    OPDOCK_UNROLL
    for (int i = 0; i < kPieces * kPiece; ++i) at[i] = 0;
  }
  // head: offset of the first element; kind: a Cache; step: distance between elements.
  OPDOCK_DEVICE void load(const Params& p, const void* data, int64_t head, int kind,
                          int64_t step = 1) {
    const int member = thread_index() % kTeam;
    OPDOCK_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const int first = (kTeam * i + member) * kPiece;
      float (&to)[kPiece] = *reinterpret_cast<float (*)[kPiece]>(&at[i * kPiece]);
      if (kind == kSame && p.by_vectors) {
        Packed<T> piece = {};
        if (first < p.size) load_piece(static_cast<const T*>(data) + head + first, &piece);
        to_floats(piece, to);
        continue;
      }
      OPDOCK_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        to[j] = 0;
        if (first + j >= p.size) continue;
        const int64_t from = head + (first + j) * step;
        if (kind == kSame)
          to[j] = to_float(static_cast<const T*>(data)[from]);
        else if (kind == kInt8)
          to[j] = int8_to_float(static_cast<const uint8_t*>(data)[from]);
        else
          to[j] = float8_to_float(static_cast<const uint8_t*>(data)[from]);
      }
    }
  }
};

// kRows: upper bound of a block's rows. Form: Batches or Sequences.
// Drop: KeptWeights or DroppedWeights.
template <class T, int Size, int kRows, class Form, class Drop = KeptWeights>
OPDOCK_DEVICE void plain_rows_of(const Params& p) {
  constexpr int kTeams = kPlainThreads / kTeam;
  using Part = Share<T, Size>;
  constexpr int kOwn = Part::kPieces * Part::kPiece;
  const int index = static_cast<int>(block_index());
  const int number = index / p.splits, split = index - number * p.splits;
  const Drop drop(p);
  if constexpr (Drop::kDrops) drop.leave(p);
  const Block block = Form::rows(p, number, kRows, split);
  if ((Form::kMayBeEmpty || Drop::kDrops) && block.rows <= 0) return;
  const int team = thread_index() / kTeam;
  Part q[kRows], out[kRows];
  float most[kRows], sum[kRows];
  OPDOCK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const Row row(p, block, r);
    q[r].clear();
    if (r < block.rows) q[r].load(p, p.q.data, p.q.at(block.batch, row.query, row.head), kSame);
    out[r].clear();
    most[r] = -infinity();
    sum[r] = 0;
  }
  const bool has_added = p.mask.data || p.bias.data || p.slopes;
  const int all_first = block.all_first(p, block.rows - 1);
  const int all_end = block.end < block.all_end(p, 0) ? block.end : block.all_end(p, 0);
  // All lanes continue as long as one does, because they exchange values.
  for (int base = block.first; base < block.end; base += kTeams) {
    const int key = base + team;
    const int place = key < block.end ? key : block.end - 1;
    Part k, v;
    k.load(p, p.k.data, p.k.at(block.key_batch, place, block.head), p.cache, p.key_element);
    v.load(p, p.v.data, p.v.at(block.key_batch, place, block.head), p.cache);
    float k_scale = p.scale, v_scale = 1;
    if (p.cache != kSame) {
      k_scale *= scale_at(p.k_scale, block, place);
      v_scale = scale_at(p.v_scale, block, place);
    }
    OPDOCK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= block.rows) continue;  // the same for all lanes
      float score = 0;
      OPDOCK_UNROLL
      for (int i = 0; i < kOwn; ++i) score = opdock::fma(q[r].at[i], k.at[i], score);
      score += shuffle_xor(score, 4);
      score += shuffle_xor(score, 2);
      score += shuffle_xor(score, 1);
      score *= k_scale;
      if (has_added || key < all_first || key >= all_end) {
        const Row row(p, block, r);
        if (key < row.first || key >= row.end)
          score = -infinity();
        else
          score = RowAdded<T>(p, block, row)(p, score, key);
      }
      const float now = opdock::max(most[r], score), factor = weight(most[r], now);
      const float own = weight(score, now);
      most[r] = now;
      sum[r] = opdock::fma(sum[r], factor, own);
      // An unseen value adds nothing, even if it is NaN.
      float of_value = own == 0 ? 0.0f : own * v_scale;
      if constexpr (Drop::kDrops)
        of_value = drop.keeps(p, drop.row(p, block, Row(p, block, r)), place)
                       ? of_value * p.drop.factor
                       : 0.0f;
      OPDOCK_UNROLL
      for (int i = 0; i < kOwn; ++i)
        out[r].at[i] = opdock::fma(of_value, own == 0 ? 0.0f : v.at[i], out[r].at[i] * factor);
    }
  }

  // Combines the teams of a warp; finish_rows() combines the block's warps.
  OPDOCK_SHARED(float, stats, 2 * kRows * (kPlainThreads / 32));
  OPDOCK_SHARED(float, sums, kRows * Size * (kPlainThreads / 32));
  const int warp = thread_index() / warp_width(), lane = thread_index() % warp_width();
  OPDOCK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    for (int mask = kTeam; mask < warp_width(); mask *= 2) {
      const float other = shuffle_xor(most[r], mask), now = opdock::max(most[r], other);
      const float factor = weight(most[r], now), their = weight(other, now);
      most[r] = now;
      sum[r] = sum[r] * factor + shuffle_xor(sum[r], mask) * their;
      OPDOCK_UNROLL
      for (int i = 0; i < kOwn; ++i)
        out[r].at[i] = out[r].at[i] * factor + shuffle_xor(out[r].at[i], mask) * their;
    }
    if (lane >= kTeam || r >= block.rows) continue;
    const int at = warp * block.rows + r;
    if (lane == 0) {
      stats[2 * at] = most[r];
      stats[2 * at + 1] = sum[r];
    }
    OPDOCK_UNROLL
    for (int i = 0; i < kOwn; ++i)
      sums[at * Size + (kTeam * (i / Part::kPiece) + lane) * Part::kPiece + i % Part::kPiece] =
          out[r].at[i];
  }
  block_barrier();
  finish_rows<T, Size>(p, block, split, kPlainThreads / warp_width(), stats, sums, kRows);
}

// A decoded token has few rows, and with one row more blocks run at once.
template <class T, int Size, int kRows>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, kRows == 1 ? 2 : 1)
plain(Params p) {
  pdl_wait_and_trigger();
  plain_rows_of<T, Size, kRows, Batches>(p);
}

}  // namespace attention
