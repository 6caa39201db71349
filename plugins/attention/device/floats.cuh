// Sixteen rows of floats per warp on tensor cores: each product consists of three TF32 products
// (matrix.cuh).
//
// As in tile.cuh, sums may be taken in any order: lane 4 g + t reads 16 bytes of key g from element
// 16 c + 4 t on. Of the values it reads keys 2 t and 2 t + 1 of each eight, from element 32 u + 4 g
// on; the products have left their weights in this lane.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tile.cuh"

namespace attention {

template <int Size>
struct Tile<float, Size, false> : Place, TileRows<Size> {
  using TileRows<Size>::out;

  static constexpr int kKeys = prompt_keys(sizeof(float));
  float q[Size / 16][2][4];

  OPDOCK_DEVICE void load_queries(const Params& p, const Block& block, const Row (&rows)[2]) {
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float* const data =
          static_cast<const float*>(p.q.data) + p.q.at(block.batch, rows[i].query, rows[i].head);
      OPDOCK_UNROLL
      for (int c = 0; c < Size / 16; ++c) {
        const int at = 16 * c + 4 * t;
        Bytes16 part = {};
        if (at < p.size && rows[i].exists) part = load16(data + at);
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j) q[c][i][j] = bits_float(part.word[j]);
      }
    }
  }

  // Multiplies with the keys in shared memory; score[i] has the products with eight keys.
  OPDOCK_DEVICE void multiply_keys(const float* keys, float (&score)[kKeys / 8][4]) const {
    OPDOCK_UNROLL
    for (int c = 0; c < Size / 16; ++c) {
      TwoParts a[2][4];
      OPDOCK_UNROLL
      for (int j = 0; j < 8; ++j)
        a[j / 4][j % 4] = TwoParts(opaque_value(q[c][j % 2][j / 4 * 2 + j % 4 / 2]));
      OPDOCK_UNROLL
      for (int i = 0; i < kKeys / 8; ++i) {
        const Bytes16 k = load16(keys + key_of(i) * key_stride(Size, 4) + 16 * c + 4 * t);
        OPDOCK_UNROLL
        for (int h = 0; h < 2; ++h)
          multiply_add(score[i], a[h], TwoParts(bits_float(k.word[2 * h])),
                       TwoParts(bits_float(k.word[2 * h + 1])));
      }
    }
  }

  // Adds the values in shared memory, multiplied by their weights. Each stage is summed separately
  // first, because the hardware's sums are accurate for a few terms only.
  OPDOCK_DEVICE void add_values(const float* values, const float (&weights)[kKeys / 8][4]) {
    OPDOCK_UNROLL
    for (int u = 0; u < Size / 32; ++u) {
      float stage[4][4] = {};
      OPDOCK_UNROLL
      for (int s = 0; s < kKeys / 8; ++s) {
        const float* const from = values + (8 * s + 2 * t) * value_stride(Size, 4) + 32 * u + 4 * g;
        const Bytes16 v[2] = {load16(from), load16(from + value_stride(Size, 4))};
        const TwoParts a[4] = {TwoParts(weights[s][0]), TwoParts(weights[s][2]),
                               TwoParts(weights[s][1]), TwoParts(weights[s][3])};
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j)
          multiply_add(stage[j], a, TwoParts(bits_float(v[0].word[j])),
                       TwoParts(bits_float(v[1].word[j])));
      }
      OPDOCK_UNROLL
      for (int j = 0; j < 16; ++j) out[4 * u + j / 4][j % 4] += stage[j / 4][j % 4];
    }
  }

  // Writes row g + 8 i of the result, multiplied by factor.
  OPDOCK_DEVICE void store(const Params& p, float* to, int i, float factor) const {
    OPDOCK_UNROLL
    for (int u = 0; u < Size / 32; ++u) {
      OPDOCK_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int at = 32 * u + 4 * (2 * t + c);
        float value[4];
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j) value[j] = out[4 * u + j][2 * i + c] * factor;
        if (p.out_by_vectors && at < p.size) {
          store16(to + at, {{float_bits(value[0]), float_bits(value[1]), float_bits(value[2]),
                             float_bits(value[3])}});
          continue;
        }
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j) {
          if (at + j < p.size) to[at + j] = value[j];
        }
      }
    }
  }
};

}  // namespace attention
