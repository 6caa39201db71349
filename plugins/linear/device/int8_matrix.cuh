// Products with int8 weights on tensor cores. A 16-bit float represents each integer exactly; sums
// of products are multiplied by their weights' scale, which applies to 64 inputs or to all.
//
// As in plugins/attention, no values are moved between lanes, because a sum may be taken in any
// order. Lane 4 g + t has inputs 16 t to 16 t + 15 of each 64, of outputs g and g + 8 and of row g
// of x. Product s of the four is over inputs 16 t + 4 s to 16 t + 4 s + 3.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "int8.cuh"
#include "opdock/matrix.cuh"

namespace linear {

// Arranges a lane's weights, for 64 inputs of sixteen outputs, by products.
template <class T>
OPDOCK_DEVICE void make_weights(const Bytes16& upper, const Bytes16& lower, uint32_t (&a)[4][4]) {
  OPDOCK_UNROLL
  for (int s = 0; s < 4; ++s) {
    int8_pairs(T{}, upper.word[s], &a[s][0], &a[s][2]);
    int8_pairs(T{}, lower.word[s], &a[s][1], &a[s][3]);
  }
}

// Adds weights times 8 * Tiles rows of x to sum.
template <class T, int Tiles>
OPDOCK_DEVICE void multiply(const uint32_t (&a)[4][4], const Bytes16 (&x)[Tiles][2],
                            float (&sum)[Tiles][4]) {
  OPDOCK_UNROLL
  for (int s = 0; s < 4; ++s) {
    OPDOCK_UNROLL
    for (int n = 0; n < Tiles; ++n) {
      const Bytes16& part = x[n][s / 2];
      multiply_add<T>(sum[n], a[s], part.word[s % 2 * 2], part.word[s % 2 * 2 + 1]);
    }
  }
}

// Scales the sums over 64 inputs from k on, for outputs `upper` and `lower`, and adds them to the
// scaled sums.
template <int Tiles>
OPDOCK_DEVICE void join(const TileParams& p, int64_t k, int64_t upper, int64_t lower,
                        float (&now)[Tiles][4], float (&sum)[Tiles][4]) {
  const float scale[2] = {scale_at(p, k + upper * p.output_index),
                          scale_at(p, k + lower * p.output_index)};
  OPDOCK_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    OPDOCK_UNROLL
    for (int j = 0; j < 4; ++j) {
      sum[n][j] = opdock::fma(now[n][j], scale[j / 2], sum[n][j]);
      now[n][j] = 0;
    }
  }
}

// Turns eight sums into elements of a row of the result, from `output` on.
template <class T>
OPDOCK_DEVICE void finish_eight(const TileParams& p, int64_t row, int64_t output,
                                float (&value)[8]) {
  if (!p.by_parts) {
    OPDOCK_UNROLL
    for (int j = 0; j < 8; ++j)
      if (output + j < p.outputs) value[j] *= scale_at(p, (output + j) * p.output_index);
  }
  if (!p.out_vectors) {
    OPDOCK_UNROLL
    for (int j = 0; j < 8; ++j)
      if (output + j < p.outputs) finish<T>(p, row, output + j, value[j]);
    return;
  }
  long long at[kTilePlaces];
  p.rows.locate(row, at);
  Packed<T> piece;
  float beside[8];
  if (p.bias) {
    load_piece(static_cast<const T*>(p.bias) + output, &piece);
    to_floats(piece, beside);
    OPDOCK_UNROLL
    for (int j = 0; j < 8; ++j) value[j] += beside[j];
  }
  activation::activate<T>(p.act, value);
  if (p.residual) {
    load_piece(static_cast<const T*>(p.residual) + at[kResidualRows] + output, &piece);
    to_floats(piece, beside);
    OPDOCK_UNROLL
    for (int j = 0; j < 8; ++j) value[j] += beside[j];
  }
  from_floats(value, &piece);
  store_piece(static_cast<T*>(p.out) + at[kOutRows] + output, piece);
}

OPDOCK_DEVICE int64_t at_most(int64_t x, int64_t last) {
  return x < last ? x : last;
}

// A block computes sixteen outputs of up to `Rows` rows; its warps take 64 inputs in turn.
template <class T, int Rows>
OPDOCK_DEVICE void few_rows(const TileParams& p) {
  constexpr int kTiles = Rows / 8, kWarps = kTileThreads / 32;
  constexpr int kStride = 20;  // floats per row: no bank conflicts
  const int lane = thread_index() % 32, warp = thread_index() / 32, g = lane / 4, t = lane % 4;
  const int64_t output = block_index() * 16, first = block_index_y() * Rows;
  const int64_t upper = at_most(output + g, p.outputs - 1);
  const int64_t lower = at_most(output + g + 8, p.outputs - 1);
  const unsigned char* const weight = static_cast<const unsigned char*>(p.weight) + t * 16;
  const T* x[kTiles];
  OPDOCK_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    long long at[kTilePlaces];
    p.rows.locate(at_most(first + n * 8 + g, p.rows.count - 1), at);
    x[n] = static_cast<const T*>(p.x) + at[kInputRows] + t * 16;
  }
  float sum[kTiles][4] = {}, now[kTiles][4] = {};
  for (int64_t k = warp * 64; k < p.inputs; k += kWarps * 64) {
    Bytes16 w[2] = {}, part[kTiles][2] = {};
    if (k + t * 16 < p.inputs) {
      w[0] = load16(weight + upper * p.output_stride + k);
      w[1] = load16(weight + lower * p.output_stride + k);
      OPDOCK_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        part[n][0] = load16(x[n] + k);
        part[n][1] = load16(x[n] + k + 8);
      }
    }
    uint32_t a[4][4];
    make_weights<T>(w[0], w[1], a);
    if (p.by_parts) {
      multiply<T>(a, part, now);
      join(p, k, upper, lower, now, sum);
    } else {
      multiply<T>(a, part, sum);
    }
  }
  OPDOCK_SHARED(Bytes16, pieces, kWarps * Rows * kStride / 4);
  float* const shared = reinterpret_cast<float*>(pieces);
  OPDOCK_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    OPDOCK_UNROLL
    for (int j = 0; j < 4; ++j)
      shared[(warp * Rows + n * 8 + 2 * t + j % 2) * kStride + g + j / 2 * 8] = sum[n][j];
  }
  block_barrier();
  for (int i = thread_index(); i < Rows * 2; i += kTileThreads) {
    const int row = i / 2, at = i % 2 * 8;
    if (first + row >= p.rows.count || output + at >= p.outputs) continue;
    float value[8] = {};
    for (int from = 0; from < kWarps; ++from) {
      OPDOCK_UNROLL
      for (int j = 0; j < 8; ++j) value[j] += shared[(from * Rows + row) * kStride + at + j];
    }
    finish_eight<T>(p, first + row, output + at, value);
  }
}

template <class T, int Rows>
OPDOCK_KERNEL(kTileThreads)
int8_few(TileParams p) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    few_rows<T, Rows>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

}  // namespace linear
