// Attention over keys and values that lie in blocks: a block of threads has eight rows of an atom
// that share keys, row r being head r % group of query r / group. Its warps take turns at the keys,
// as many at a time as a warp has lanes: for the scores each lane has a key, for the sums of values
// some columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/packed.cuh"
#include "ragged_params.cuh"

namespace ragged {

using namespace opdock;

// Loads Count elements as floats, from an address that is a multiple of their bytes or of 16.
template <int Count, class T>
OPDOCK_DEVICE void load_floats(const T* from, float (&to)[Count]) {
  constexpr int kBytes = Count * static_cast<int>(sizeof(T));
  if constexpr (kBytes >= 16) {
    OPDOCK_UNROLL
    for (int i = 0; i < Count; i += vector_size<T>) {
      Packed<T> piece;
      load_piece(from + i, &piece);
      to_floats(piece, *reinterpret_cast<float (*)[vector_size<T>]>(&to[i]));
    }
  } else {
    union {
      Unit<kBytes> unit;
      T at[Count];
    } both;
    both.unit = load_unit<kBytes>(from);
    OPDOCK_UNROLL
    for (int i = 0; i < Count; ++i) to[i] = to_float(both.at[i]);
  }
}

// 2^(score - most); 0 for what is not seen.
OPDOCK_DEVICE float weight(float score, float most) {
  return score == -infinity() ? 0.0f : opdock::exp2(score - most);
}

struct alignas(16) Four {
  float at[4];
};

// Size: upper bound of a head's elements.
template <class T, int Size>
OPDOCK_KERNEL(kAttendThreads)
attend(AttendParams p) {
  pdl_wait_and_trigger();
  constexpr int kLanes = warp_width(), kWarps = kAttendThreads / kLanes;
  constexpr int kOwn = Size / kLanes;  // columns of a lane
  constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  OPDOCK_SHARED(Four, q, kRows * Size / 4);
  OPDOCK_SHARED(Four, weights, kAttendThreads * kRows / 4);  // by warp and key
  OPDOCK_SHARED(int64_t, places, kAttendThreads);            // of values, by warp and key
  OPDOCK_SHARED(float, sums, kWarps * kRows * Size);
  OPDOCK_SHARED(float, stats, kWarps * kRows * 2);

  const int warp = thread_index() / kLanes, lane = thread_index() % kLanes;
  const int kv_heads = p.heads / p.group;
  const int64_t job = block_index() / p.tiles;
  const int first_tile = static_cast<int>(block_index() - job * p.tiles);
  const int64_t number = job / kv_heads;
  const int kv_head = static_cast<int>(job - number * kv_heads);
  const int* const atom = p.atoms + number * kAtomInts;
  const int* const list = p.list(atom);
  const T* const keys = static_cast<const T*>(p.k) + kv_head * p.k_head;
  const T* const values = static_cast<const T*>(p.v) + kv_head * p.v_head;
  const int all_rows = atom[kQueries] * p.group;

  for (int base_row = first_tile * kRows; base_row < all_rows; base_row += p.tiles * kRows) {
    const int rows = all_rows - base_row < kRows ? all_rows - base_row : kRows;
    block_barrier();  // of the previous rows
    for (int i = thread_index(); i < kRows * Size; i += kAttendThreads) {
      const int r = i / Size, column = i - r * Size, row = base_row + r;
      float element = 0;
      if (r < rows && column < p.size) {
        const int64_t query = int64_t{atom[kFirstQuery]} + row / p.group;
        const int head = kv_head * p.group + row % p.group;
        if (query >= 0 && query < p.tokens)
          element = to_float(
              static_cast<const T*>(p.q)[query * p.q_row + int64_t{head} * p.size + column]);
      }
      reinterpret_cast<float*>(q)[i] = element * p.scale;
    }
    block_barrier();

    float most[kRows], sum[kRows], out[kRows][kOwn];
    OPDOCK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      most[r] = -infinity();
      sum[r] = 0;
      OPDOCK_UNROLL
      for (int i = 0; i < kOwn; ++i) out[r][i] = 0;
    }
    const int end = p.visible(atom, (base_row + rows - 1) / p.group);
    for (int base = warp * kLanes; base < end; base += kAttendThreads) {
      const int key = base + lane;
      const int block = key < end ? p.block(list, key) : -1;
      const int64_t place = key % p.block_size;
      float score[kRows];
      OPDOCK_UNROLL
      for (int r = 0; r < kRows; ++r) score[r] = 0;
      if (block >= 0) {
        const T* const from = keys + block * p.k_block + place * p.k_place;
        for (int first = 0; first < p.size; first += kPiece) {
          float element[kPiece];
          load_floats(from + first, element);
          OPDOCK_UNROLL
          for (int r = 0; r < kRows; ++r) {
            if (r >= rows) break;
            OPDOCK_UNROLL
            for (int i = 0; i < kPiece; i += 4) {
              const Four four = q[(r * Size + first + i) / 4];
              OPDOCK_UNROLL
              for (int j = 0; j < 4; ++j)
                score[r] = opdock::fma(four.at[j], element[i + j], score[r]);
            }
          }
        }
      }
      float own[kRows];
      OPDOCK_UNROLL
      for (int r = 0; r < kRows; ++r) {
        own[r] = 0;
        if (r >= rows) continue;
        if (key >= p.visible(atom, (base_row + r) / p.group))
          score[r] = -infinity();
        else if (block < 0)
          score[r] = bits_float(0x7fc00000u);  // the cache has no such block
        const float now = opdock::max(most[r], warp_reduce<Max>(score[r]));
        const float factor = weight(most[r], now);
        own[r] = weight(score[r], now);
        most[r] = now;
        sum[r] = opdock::fma(sum[r], factor, own[r]);
        OPDOCK_UNROLL
        for (int i = 0; i < kOwn; ++i) out[r][i] *= factor;
      }
      warp_barrier();  // other lanes may still read the previous weights
      OPDOCK_UNROLL
      for (int r = 0; r < kRows; r += 4)
        weights[(thread_index() * kRows + r) / 4] = {{own[r], own[r + 1], own[r + 2], own[r + 3]}};
      places[thread_index()] = block < 0 ? -1 : block * p.v_block + place * p.v_place;
      warp_barrier();
      const int count = end - base < kLanes ? end - base : kLanes;
      for (int j = 0; j < count; ++j) {
        const int64_t from = places[warp * kLanes + j];
        float value[kOwn] = {};
        if (from >= 0 && lane * kOwn < p.size) load_floats(values + from + lane * kOwn, value);
        OPDOCK_UNROLL
        for (int r = 0; r < kRows; r += 4) {
          const Four four = weights[((warp * kLanes + j) * kRows + r) / 4];
          OPDOCK_UNROLL
          for (int s = 0; s < 4; ++s) {
            // An unseen value adds nothing, even if it is NaN.
            if (r + s >= rows || four.at[s] == 0.0f) continue;
            OPDOCK_UNROLL
            for (int i = 0; i < kOwn; ++i)
              out[r + s][i] = opdock::fma(four.at[s], value[i], out[r + s][i]);
          }
        }
      }
    }

    // Combines the warps.
    OPDOCK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float total = warp_reduce<Sum>(sum[r]);
      const int at = warp * kRows + r;
      if (lane == 0) {
        stats[2 * at] = most[r];
        stats[2 * at + 1] = total;
      }
      OPDOCK_UNROLL
      for (int i = 0; i < kOwn; ++i) sums[at * Size + lane * kOwn + i] = out[r][i];
    }
    block_barrier();
    for (int i = thread_index(); i < rows * Size; i += kAttendThreads) {
      const int r = i / Size, column = i - r * Size, row = base_row + r;
      if (column >= p.size) continue;
      float highest = -infinity(), total = 0, of_values = 0;
      for (int w = 0; w < kWarps; ++w) highest = opdock::max(highest, stats[2 * (w * kRows + r)]);
      for (int w = 0; w < kWarps; ++w) {
        const int at = w * kRows + r;
        const float factor = weight(stats[2 * at], highest);
        if (factor == 0.0f && stats[2 * at + 1] == 0.0f) continue;
        total = opdock::fma(stats[2 * at + 1], factor, total);
        of_values = opdock::fma(sums[at * Size + column], factor, of_values);
      }
      const int64_t query = int64_t{atom[kFirstQuery]} + row / p.group;
      if (query < 0 || query >= p.tokens) continue;
      const int head = kv_head * p.group + row % p.group;
      static_cast<T*>(p.out)[query * p.out_row + int64_t{head} * p.size + column] =
          from_float<T>(total == 0.0f ? 0.0f : of_values / total);
    }
  }
}

}  // namespace ragged
