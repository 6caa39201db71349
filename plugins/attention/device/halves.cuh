// Sixteen rows of 16-bit elements per warp on tensor cores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tile.cuh"

namespace attention {

template <class T, int Size>
struct Tile<T, Size, false> : Lane<T, Size, kSame>, TileRows<Size> {
  using Of = Lane<T, Size, kSame>;
  using Of::g, Of::t;
  using TileRows<Size>::out;

  static constexpr int kKeys = prompt_keys(sizeof(T));
  uint32_t q[Size / 16][4];

  OPDOCK_DEVICE void load_queries(const Params& p, const Block& block, const Row (&rows)[2]) {
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      uint32_t row[Size / 16][2];
      this->load_query(p, block, rows[i], row);
      OPDOCK_UNROLL
      for (int c = 0; c < Size / 16; ++c) {
        q[c][i] = row[c][0];
        q[c][2 + i] = row[c][1];
      }
    }
  }

  // Multiplies with the keys in shared memory; score[i] has the products with eight keys.
  OPDOCK_DEVICE void multiply_keys(const T* keys, float (&score)[kKeys / 8][4]) const {
    OPDOCK_UNROLL
    for (int c = 0; c < Of::kKeyVectors; ++c) {
      OPDOCK_UNROLL
      for (int i = 0; i < kKeys / 8; ++i) {
        const Bytes16 k = load16(keys + this->key_of(i) * key_stride(Size, 2) + (4 * c + t) * 8);
        OPDOCK_UNROLL
        for (int h = 0; h < 2; ++h)
          multiply_add<T>(score[i], q[2 * c + h], k.word[2 * h], k.word[2 * h + 1]);
      }
    }
  }

  // Adds the values in shared memory, multiplied by their weights.
  OPDOCK_DEVICE void add_values(const T* values, const float (&weights)[kKeys / 8][4]) {
    OPDOCK_UNROLL
    for (int i = 0; i < kKeys / kStep; ++i) {
      Bytes16 v[4][Of::kValueVectors];
      OPDOCK_UNROLL
      for (int j = 0; j < 4; ++j) {
        OPDOCK_UNROLL
        for (int u = 0; u < Of::kValueVectors; ++u)
          v[j][u] = load16(values + (i * kStep + this->value_of(j)) * value_stride(Size, 2) +
                           (8 * u + g) * 8);
      }
      add_values(weights[2 * i], weights[2 * i + 1], v);
    }
  }

  // Writes row g + 8 i of the result, multiplied by factor.
  OPDOCK_DEVICE void store(const Params& p, T* to, int i, float factor) const {
    OPDOCK_UNROLL
    for (int u = 0; u < Of::kValueVectors; ++u) {
      OPDOCK_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int at = (8 * u + 2 * t + c) * 8;
        if (at >= p.size) continue;
        Bytes16 words;
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j)
          words.word[j] = floats_to_pair(T{}, out[8 * u + 2 * j][2 * i + c] * factor,
                                         out[8 * u + 2 * j + 1][2 * i + c] * factor);
        if (p.out_by_vectors) {
          store16(to + at, words);
          continue;
        }
        OPDOCK_UNROLL
        for (int j = 0; j < 8; ++j) {
          if (at + j < p.size)
            to[at + j] = {static_cast<uint16_t>(words.word[j / 2] >> (16 * (j % 2)))};
        }
      }
    }
  }

 protected:
  // Adds the values of sixteen keys, multiplied by their weights. v[i]: those of value value_of(i).
  OPDOCK_DEVICE void add_values(const float (&low)[4], const float (&high)[4],
                                const Bytes16 (&v)[4][Of::kValueVectors]) {
    const uint32_t a[4] = {floats_to_pair(T{}, low[0], low[1]), floats_to_pair(T{}, low[2], low[3]),
                           floats_to_pair(T{}, high[0], high[1]),
                           floats_to_pair(T{}, high[2], high[3])};
    OPDOCK_UNROLL
    for (int u = 0; u < Of::kValueVectors; ++u) {
      OPDOCK_UNROLL
      for (int w = 0; w < 4; ++w) {
        const int n = 8 * u + 2 * w;
        multiply_add<T>(out[n], a, low_halves(v[0][u].word[w], v[1][u].word[w]),
                        low_halves(v[2][u].word[w], v[3][u].word[w]));
        multiply_add<T>(out[n + 1], a, high_halves(v[0][u].word[w], v[1][u].word[w]),
                        high_halves(v[2][u].word[w], v[3][u].word[w]));
      }
    }
  }
};

}  // namespace attention
