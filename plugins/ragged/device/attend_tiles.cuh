// Attention over keys and values that lie in blocks, on tensor cores, for 16-bit elements: a warp
// has 16 rows of an atom that share keys, row r being head r % group of query r / group. A block's
// warps read the same keys from shared memory, kTileKeys at a time, while the next ones arrive.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attend.cuh"
#include "opdock/copy_async.cuh"
#include "opdock/matrix.cuh"

namespace ragged {

inline constexpr int kTileKeys = 32;

// Two rows of a lane, 8 apart, of the 16 of its warp.
struct TileRow {
  int64_t query;
  int head, end;  // end: keys that the row sees
};

template <class T, int Size>
class Tile {
 public:
  // Words of shared memory, of two elements. The stride lets lanes that read at the same time read
  // from different banks: 4 words from one row to the next.
  static constexpr int kStride = Size / 2 + 4;
  static constexpr int kStage = 2 * kTileKeys * kStride;  // keys, then values
  static constexpr int kStages = Size <= 128 ? 2 : 1;     // what static shared memory has room for

  OPDOCK_DEVICE Tile(const AttendParams& p, const int* atom, int kv_head, int first_row, int rows)
      : p_(p), lane_(thread_index() & 31), g_(lane_ / 4), t_(lane_ & 3) {
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + g_ + 8 * i;
      is_row_[i] = row < rows;
      const int safe = is_row_[i] ? row : 0, query = safe / p.group;
      row_[i] = {int64_t{atom[kFirstQuery]} + query, kv_head * p.group + safe % p.group,
                 is_row_[i] ? p.visible(atom, query) : 0};
      is_row_[i] = is_row_[i] && row_[i].query >= 0 && row_[i].query < p.tokens;
      most_[i] = -infinity();
      sum_[i] = 0;
    }
    OPDOCK_UNROLL
    for (int step = 0; step < Size / 16; ++step) {
      OPDOCK_UNROLL
      for (int i = 0; i < 4; ++i) q_[step][i] = query_word(i % 2, 16 * step + 2 * t_ + i / 2 * 8);
    }
    OPDOCK_UNROLL
    for (int j = 0; j < Size / 8; ++j) {
      OPDOCK_UNROLL
      for (int i = 0; i < 4; ++i) out_[j][i] = 0;
    }
  }

  // Takes the keys from number `key` on. is_there: of each key of the stage, whether the cache has
  // its block.
  OPDOCK_DEVICE void take(const uint32_t* stage, const int* is_there, int key) {
    float score[kTileKeys / 8][4] = {};
    OPDOCK_UNROLL
    for (int n = 0; n < kTileKeys / 8; ++n) {
      const uint32_t* const row = stage + (8 * n + g_) * kStride + t_;
      OPDOCK_UNROLL
      for (int step = 0; step < Size / 16; ++step)
        multiply_add<T>(score[n], q_[step], row[8 * step], row[8 * step + 4]);
    }
    OPDOCK_UNROLL
    for (int n = 0; n < kTileKeys / 8; ++n) {
      OPDOCK_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * n + 2 * t_ + i % 2;
        score[n][i] *= p_.scale;
        if (key + at >= row_[i / 2].end)
          score[n][i] = -infinity();
        else if (!is_there[at])
          score[n][i] = bits_float(0x7fc00000u);
      }
    }
    weigh(score);
    add_values(stage + kTileKeys * kStride, score);
  }

  OPDOCK_DEVICE void store() {
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      float sum = sum_[i];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      if (!is_row_[i]) continue;
      const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
      T* const to =
          static_cast<T*>(p_.out) + row_[i].query * p_.out_row + int64_t{row_[i].head} * p_.size;
      OPDOCK_UNROLL
      for (int j = 0; j < Size / 8; j += 2) {
        // Two tiles have the even and the odd ones of 16 columns: four adjacent ones are a lane's.
        const int column = 8 * j + 4 * t_;
        if (column >= p_.size) continue;
        const float own[4] = {out_[j][2 * i], out_[j + 1][2 * i], out_[j][2 * i + 1],
                              out_[j + 1][2 * i + 1]};
        OPDOCK_UNROLL
        for (int c = 0; c < 4; ++c) to[column + c] = from_float<T>(own[c] * factor);
      }
    }
  }

 private:
  OPDOCK_DEVICE uint32_t query_word(int i, int column) const {
    if (!is_row_[i] || column >= p_.size) return 0;
    const T* const from = static_cast<const T*>(p_.q) + row_[i].query * p_.q_row +
                          int64_t{row_[i].head} * p_.size + column;
    return from[0].bits | static_cast<uint32_t>(from[1].bits) << 16;
  }

  // Makes the weights of the scores, and scales what there is already to the new maximum.
  OPDOCK_DEVICE void weigh(float (&score)[kTileKeys / 8][4]) {
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      float now = most_[i];
      OPDOCK_UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n)
        now = opdock::max(now, opdock::max(score[n][2 * i], score[n][2 * i + 1]));
      now = opdock::max(now, shuffle_xor(now, 1));
      now = opdock::max(now, shuffle_xor(now, 2));
      const float factor = weight(most_[i], now);
      most_[i] = now;
      sum_[i] *= factor;
      OPDOCK_UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) {
        OPDOCK_UNROLL
        for (int c = 0; c < 2; ++c) {
          float& own = score[n][2 * i + c];
          own = weight(own, now);
          sum_[i] += own;
        }
      }
      OPDOCK_UNROLL
      for (int j = 0; j < Size / 8; ++j) {
        out_[j][2 * i] *= factor;
        out_[j][2 * i + 1] *= factor;
      }
    }
  }

  OPDOCK_DEVICE void add_values(const uint32_t* values, const float (&score)[kTileKeys / 8][4]) {
    OPDOCK_UNROLL
    for (int step = 0; step < kTileKeys / 16; ++step) {
      const float (&low)[4] = score[2 * step], (&high)[4] = score[2 * step + 1];
      const uint32_t a[4] = {
          floats_to_pair(T{}, low[0], low[1]), floats_to_pair(T{}, low[2], low[3]),
          floats_to_pair(T{}, high[0], high[1]), floats_to_pair(T{}, high[2], high[3])};
      const uint32_t* const row = values + (16 * step + 2 * t_) * kStride + g_;
      OPDOCK_UNROLL
      for (int j = 0; j < Size / 8; j += 2) {
        const uint32_t* const from = row + 4 * j;
        const uint32_t w[4] = {from[0], from[kStride], from[8 * kStride], from[9 * kStride]};
        multiply_add<T>(out_[j], a, low_halves(w[0], w[1]), low_halves(w[2], w[3]));
        multiply_add<T>(out_[j + 1], a, high_halves(w[0], w[1]), high_halves(w[2], w[3]));
      }
    }
  }

  const AttendParams& p_;
  const int lane_, g_, t_;
  TileRow row_[2];
  bool is_row_[2];
  float most_[2], sum_[2];
  uint32_t q_[Size / 16][4];
  float out_[Size / 8][4];
};

template <class T, int Size>
OPDOCK_DEVICE void attend_by_tiles(const AttendParams& p) {
  using Own = Tile<T, Size>;
  constexpr int kPieces = Size / 8;  // of 16 bytes, of a row
  OPDOCK_SHARED(Bytes16, stages, Own::kStages * Own::kStage / 4);
  OPDOCK_SHARED(int, is_there, Own::kStages* kTileKeys);

  const int kv_heads = p.heads / p.group;
  const int64_t job = block_index() / p.tiles;
  const int first_tile = static_cast<int>(block_index() - job * p.tiles);
  const int64_t number = job / kv_heads;
  const int kv_head = static_cast<int>(job - number * kv_heads);
  const int* const atom = p.atoms + number * kAtomInts;
  const int* const list = p.list(atom);
  const int rows = atom[kQueries] * p.group;
  const int warp = thread_index() / 32;

  for (int base = first_tile * kTileRows; base < rows; base += p.tiles * kTileRows) {
    const int last = base + kTileRows < rows ? base + kTileRows : rows;
    const int end = p.visible(atom, (last - 1) / p.group);
    Own tile(p, atom, kv_head, base + 16 * warp, rows);
    // Four threads copy a row; what lies behind a head's elements, or is no key, is 0.
    const auto copy = [&](int first, int to) {
      const int at = thread_index() / 4, key = first + at;
      const int block = key < end ? p.block(list, key) : -1;
      const int64_t place = key % p.block_size;
      if (thread_index() % 4 == 0) is_there[to * kTileKeys + at] = block >= 0;
      const T* const k =
          static_cast<const T*>(p.k) + kv_head * p.k_head + block * p.k_block + place * p.k_place;
      const T* const v =
          static_cast<const T*>(p.v) + kv_head * p.v_head + block * p.v_block + place * p.v_place;
      Bytes16* const keys = stages + (to * Own::kStage + at * Own::kStride) / 4;
      Bytes16* const values = keys + kTileKeys * Own::kStride / 4;
      for (int piece = thread_index() % 4; piece < kPieces; piece += 4) {
        if (block >= 0 && 8 * piece < p.size) {
          copy_async16(keys + piece, k + 8 * piece);
          copy_async16(values + piece, v + 8 * piece);
        } else {
          store16(keys + piece, Bytes16{});
          store16(values + piece, Bytes16{});
        }
      }
    };
    const auto* const words = reinterpret_cast<const uint32_t*>(&stages[0]);
    int stage = 0;
    if (Own::kStages == 2 && end > 0) copy(0, 0);
    copy_async_commit();
    for (int key = 0; key < end; key += kTileKeys) {
      if (Own::kStages == 1)
        copy(key, 0);
      else if (key + kTileKeys < end)
        copy(key + kTileKeys, stage ^ 1);
      copy_async_commit();
      copy_async_wait<Own::kStages - 1>();
      block_barrier();
      tile.take(words + stage * Own::kStage, is_there + stage * kTileKeys, key);
      block_barrier();  // before the stage is filled again
      if (Own::kStages == 2) stage ^= 1;
    }
    tile.store();
  }
}

template <class T, int Size>
OPDOCK_KERNEL(kAttendThreads)
attend_tiles(AttendParams p) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    attend_by_tiles<T, Size>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

}  // namespace ragged
