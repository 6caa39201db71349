// Sixteen rows of 16-bit elements per warp on tensor cores, for keys that lie by columns, [element,
// key].
//
// Lane 4 g + t reads eight keys, from key 8 g on, of the four elements that its queries' words
// hold. So column g of the product's tile i is key 8 g + i, and the lane's scores belong to keys 16
// t + i and 16 t + 8 + i. It reads their values in this order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "halves.cuh"

namespace attention {

template <class T, int Size>
struct Tile<T, Size, true> : Tile<T, Size, false> {
  using Rows = Tile<T, Size, false>;
  using Rows::g, Rows::t, Rows::q, Rows::kKeys;
  using Vectors = Bytes16[4][Rows::Of::kValueVectors];

  OPDOCK_DEVICE int column_key(int tile, int j) const { return (2 * t + j % 2) * 8 + tile; }

  // Multiplies with the keys in shared memory; score[i] has the products with eight keys.
  OPDOCK_DEVICE void multiply_keys(const T* keys, float (&score)[kKeys / 8][4]) const {
    static_assert(kKeys == 64, "eight keys of each of eight lanes");
    OPDOCK_UNROLL
    for (int c = 0; c < Size / 16; ++c) {
      Bytes16 k[4];
      OPDOCK_UNROLL
      for (int j = 0; j < 4; ++j)
        k[j] = load16(keys + column_at(c / 2 * 32 + t * 8 + c % 2 * 4 + j) + 8 * g);
      OPDOCK_UNROLL
      for (int w = 0; w < 4; ++w) {
        multiply_add<T>(score[2 * w], q[c], low_halves(k[0].word[w], k[1].word[w]),
                        low_halves(k[2].word[w], k[3].word[w]));
        multiply_add<T>(score[2 * w + 1], q[c], high_halves(k[0].word[w], k[1].word[w]),
                        high_halves(k[2].word[w], k[3].word[w]));
      }
    }
  }

  // Adds the values in shared memory, multiplied by their weights.
  OPDOCK_DEVICE void add_values(const T* values, const float (&weights)[kKeys / 8][4]) {
    OPDOCK_UNROLL
    for (int i = 0; i < kKeys / kStep; ++i) {
      Vectors v;
      OPDOCK_UNROLL
      for (int j = 0; j < 4; ++j) {
        const T* const from = values + column_value_at(column_key(2 * i + j / 2, j), Size);
        OPDOCK_UNROLL
        for (int u = 0; u < Rows::Of::kValueVectors; ++u) v[j][u] = load16(from + (8 * u + g) * 8);
      }
      Rows::add_values(weights[2 * i], weights[2 * i + 1], v);
    }
  }
};

}  // namespace attention
