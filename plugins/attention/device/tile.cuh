// The state of a warp of 32 lanes for rows whose products tensor cores compute, with running maxima
// and sums (Milakov and Gimelshein 2018; Dao et al. 2022).
//
// No values are moved between lanes to arrange the matrices, because a sum may be taken in any
// order. Lane 4 g + t reads 16 bytes of key g from element 4 E c + E t on (E elements are in 16
// bytes, c counts such steps), and loads the queries' elements in the same order. Of the values it
// reads keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 from element 8 E u + E g on; column g of the
// product's tile u E + j is element 8 E u + E g + j.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache.cuh"
#include "rows.cuh"

namespace attention {

inline constexpr int kStep = 16;  // keys handled at a time

// Determines which rows and columns of a product a lane has.
struct Place {
  int g, t;

  OPDOCK_DEVICE Place() {
    const int lane = thread_index() & 31;
    g = lane / 4;
    t = lane % 4;
  }
  // column_key() returns which of a step's keys a column of the products belongs to, and key_of()
  // which of them the lane reads.
  OPDOCK_DEVICE int column_key(int tile, int j) const { return tile * 8 + 2 * t + j % 2; }
  OPDOCK_DEVICE int key_of(int i) const { return i * 8 + g; }
};

// A lane's part of queries, keys and values of 16 bits, or of keys and values of 8 bits.
template <class T, int Size, int Kind>
struct Lane : Place {
  static constexpr int kElements = Pairs<T, Kind>::kElements;
  static constexpr int kKeyVectors = Size / (4 * kElements);  // vectors of a key that a lane has
  static constexpr int kValueVectors = Size / (8 * kElements);
  static_assert(kValueVectors > 0, "a head has a vector for each lane");

  // Returns the element at which a lane reads a key or value. For elements beyond the head's size
  // that is another element, which is multiplied by 0 or whose result is not stored.
  OPDOCK_DEVICE int key_element(const Params& p, int vector) const {
    const int at = vector * 4 * kElements + t * kElements;
    return at < p.size ? at : 0;
  }
  OPDOCK_DEVICE int value_element(const Params& p, int vector) const {
    const int at = vector * 8 * kElements + g * kElements;
    return at < p.size ? at : 0;
  }
  // Returns which of the step's values the lane reads.
  OPDOCK_DEVICE int value_of(int i) const { return 2 * t + i % 2 + i / 2 * 8; }

  // Loads a query as the products need it: words i of the two halves of each sixteen elements.
  OPDOCK_DEVICE void load_query(const Params& p, const Block& block, const Row& row,
                                uint32_t (&to)[Size / 16][2]) const {
    const T* data = static_cast<const T*>(p.q.data) + p.q.at(block.batch, row.query, row.head);
    OPDOCK_UNROLL
    for (int c = 0; c < kKeyVectors; ++c) {
      OPDOCK_UNROLL
      for (int v = 0; v < kElements / 8; ++v) {
        const int at = (c * 4 + t) * kElements + v * 8;
        Bytes16 part = {};
        if (at < p.size && row.exists) part = load16(data + at);
        OPDOCK_UNROLL
        for (int h = 0; h < 4; ++h) to[c * (kElements / 4) + 2 * v + h / 2][h % 2] = part.word[h];
      }
    }
  }
};

// Turns the products with `Steps` times eight keys into scores that are exponents of 2, for `Rows`
// rows of a lane: score[s][2 * row + column]. Scores of keys that a row does not see become
// -infinity. all: every row sees every key.
template <class T, int Rows, int Steps, class Of>
OPDOCK_DEVICE void make_scores(const Of& of, const Params& p, const Block& block,
                               const Row (&rows)[Rows], int first_key, bool all, bool has_scales,
                               float (&score)[Steps][4]) {
  OPDOCK_UNROLL
  for (int s = 0; s < Steps; ++s) {
    OPDOCK_UNROLL
    for (int j = 0; j < 2 * Rows; ++j) {
      score[s][j] *= p.scale;
      if (has_scales) {
        const int key = first_key + of.column_key(s, j);
        score[s][j] *= scale_at(p.k_scale, block, key < block.end ? key : block.end - 1);
      }
    }
  }
  if (p.mask.data || p.bias.data || p.slopes) {
    OPDOCK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const RowAdded<T> added(p, block, rows[r]);
      OPDOCK_UNROLL
      for (int s = 0; s < Steps; ++s) {
        OPDOCK_UNROLL
        for (int j = 2 * r; j < 2 * r + 2; ++j) {
          const int key = first_key + of.column_key(s, j);
          if (key < block.end) score[s][j] = added(p, score[s][j], key);
        }
      }
    }
  }
  if (all) return;
  OPDOCK_UNROLL
  for (int s = 0; s < Steps; ++s) {
    OPDOCK_UNROLL
    for (int j = 0; j < 2 * Rows; ++j) {
      const int key = first_key + of.column_key(s, j);
      if (key < rows[j / 2].first || key >= rows[j / 2].end) score[s][j] = -infinity();
    }
  }
}

// Sixteen rows of a warp; keys lie by rows or, for 16-bit elements, by columns.
template <class T, int Size, bool ByColumns = false>
struct Tile;

// Results so far of sixteen rows.
template <int Size>
struct TileRows {
  float out[Size / 8][4] = {};
  float most[2] = {-infinity(), -infinity()};  // maxima of rows g and g + 8
  float sum[2] = {};                           // sums over this lane's keys

  // Turns scores into weights, relative to the maximum over all keys so far. Steps: number of times
  // 8 keys.
  template <int Steps>
  OPDOCK_DEVICE void make_weights(float (&score)[Steps][4]) {
    float now[2] = {most[0], most[1]};
    OPDOCK_UNROLL
    for (int s = 0; s < Steps; ++s) {
      OPDOCK_UNROLL
      for (int j = 0; j < 4; ++j) now[j / 2] = opdock::max(now[j / 2], score[s][j]);
    }
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      now[i] = opdock::max(now[i], shuffle_xor(now[i], 1));
      now[i] = opdock::max(now[i], shuffle_xor(now[i], 2));
    }
    if (vote_any(now[0] > most[0] || now[1] > most[1])) {
      OPDOCK_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float factor = weight(most[i], now[i]);
        most[i] = now[i];
        sum[i] *= factor;
        OPDOCK_UNROLL
        for (int n = 0; n < Size / 8; ++n) {
          out[n][2 * i] *= factor;
          out[n][2 * i + 1] *= factor;
        }
      }
    }
    OPDOCK_UNROLL
    for (int s = 0; s < Steps; ++s) {
      OPDOCK_UNROLL
      for (int j = 0; j < 4; ++j) {
        score[s][j] = weight(score[s][j], most[j / 2]);
        sum[j / 2] += score[s][j];
      }
    }
  }

  // Adds up the sums over all lanes' keys.
  OPDOCK_DEVICE void finish_sums() {
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      sum[i] += shuffle_xor(sum[i], 1);
      sum[i] += shuffle_xor(sum[i], 2);
    }
  }
};

}  // namespace attention
