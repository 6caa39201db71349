// Products with int8 weights on a GPU: weights are converted to floats in registers when they are
// used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_math.cuh"
#include "opdock/device.cuh"
#include "opdock/packed.cuh"
#include "tile_params.cuh"

namespace linear {

using namespace opdock;

// Returns the scale of the weight with this index.
OPDOCK_DEVICE float scale_at(const TileParams& p, int64_t index) {
  const uint64_t wide = static_cast<uint64_t>(index);
  return p
      .scale[p.shift < 0 ? index : static_cast<int64_t>(multiply_high(wide, p.factor) >> p.shift)];
}
OPDOCK_DEVICE float weight_at(const TileParams& p, int64_t input, int64_t output) {
  const int64_t at = input * p.input_stride + output * p.output_stride;
  return int8_to_float(static_cast<const unsigned char*>(p.weight)[at]) *
         scale_at(p, input * p.input_index + output * p.output_index);
}

// Turns a sum into element `output` of a row of the result.
template <class T>
OPDOCK_DEVICE void finish(const TileParams& p, int64_t row, int64_t output, float sum) {
  long long at[kTilePlaces];
  p.rows.locate(row, at);
  float value[1] = {sum};
  if (p.bias) value[0] += to_float(static_cast<const T*>(p.bias)[output]);
  activation::activate<T>(p.act, value);
  if (p.residual)
    value[0] += to_float(static_cast<const T*>(p.residual)[at[kResidualRows] + output]);
  static_cast<T*>(p.out)[at[kOutRows] + output] = from_float<T>(value[0]);
}

// Adds the products of 16 elements, x * weight, to sum.
template <class T>
OPDOCK_DEVICE void add_products(const T* x, const float (&weight)[16], float* sum) {
  constexpr int kSize = vector_size<T>;
  OPDOCK_UNROLL
  for (int piece = 0; piece < 16 / kSize; ++piece) {
    Packed<T> loaded;
    load_piece(x + piece * kSize, &loaded);
    float value[kSize];
    to_floats(loaded, value);
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) *sum = opdock::fma(value[k], weight[piece * kSize + k], *sum);
  }
}

// A warp computes an output for `Rows` rows at once: each weight is read once for all of them. The
// weight's inputs are contiguous.
template <class T, int Rows>
OPDOCK_KERNEL(kTileThreads)
int8_rows(TileParams p) {
  pdl_wait_and_trigger();
  constexpr int kWarp = warp_width();
  const int lane = thread_index() % kWarp;
  const int64_t output = block_index() * (kTileThreads / kWarp) + thread_index() / kWarp;
  if (output >= p.outputs) return;
  const int64_t first = block_index_y() * Rows;
  const T* x[Rows];
  OPDOCK_UNROLL
  for (int m = 0; m < Rows; ++m) {
    const int64_t row = first + m < p.rows.count ? first + m : p.rows.count - 1;
    long long at[kTilePlaces];
    p.rows.locate(row, at);
    x[m] = static_cast<const T*>(p.x) + at[kInputRows];
  }
  float sum[Rows] = {};
  if (p.vectors) {
    const unsigned char* const weights =
        static_cast<const unsigned char*>(p.weight) + output * p.output_stride;
    for (int64_t k = lane * 16; k < p.inputs; k += kWarp * 16) {
      const Bytes16 bytes = load16(weights + k);
      const float scale = scale_at(p, k + output * p.output_index);
      float weight[16];
      OPDOCK_UNROLL
      for (int i = 0; i < 16; ++i)
        weight[i] = int8_to_float(bytes.word[i / 4] >> i % 4 * 8) * scale;
      OPDOCK_UNROLL
      for (int m = 0; m < Rows; ++m) add_products(x[m] + k, weight, &sum[m]);
    }
  } else {
    for (int64_t k = lane; k < p.inputs; k += kWarp) {
      const float weight = weight_at(p, k, output);
      OPDOCK_UNROLL
      for (int m = 0; m < Rows; ++m) sum[m] = opdock::fma(to_float(x[m][k]), weight, sum[m]);
    }
  }
  float mine = 0;
  OPDOCK_UNROLL
  for (int m = 0; m < Rows; ++m) {
    const float all = warp_reduce<Sum>(sum[m]);
    if (lane == m) mine = all;
  }
  if (lane < Rows && first + lane < p.rows.count) finish<T>(p, first + lane, output, mine);
}

// Computes tiles of the result, for any rows: a thread has 4 x 4 elements.
template <class T>
OPDOCK_KERNEL(kTileThreads)
int8_tiles(TileParams p) {
  pdl_wait_and_trigger();
  constexpr int kDepth = 16, kEach = 4, kSide = kTileSide / kEach;
  constexpr int kStride = kTileSide + 4;  // fours stay aligned, and there are fewer bank conflicts
  // Declared as the type that is read at once, so that it is aligned to that.
  OPDOCK_SHARED(Bytes16, left_pieces, kDepth * kStride / 4);
  OPDOCK_SHARED(Bytes16, right_pieces, kDepth * kStride / 4);
  float* const left = reinterpret_cast<float*>(left_pieces);
  float* const right = reinterpret_cast<float*>(right_pieces);
  const int thread = thread_index(), down = thread / kSide * kEach, across = thread % kSide * kEach;
  const int64_t columns = (p.outputs + kTileSide - 1) / kTileSide;
  const int64_t tiles = (p.rows.count + kTileSide - 1) / kTileSide * columns;
  for (int64_t tile = block_index(); tile < tiles; tile += grid_blocks()) {
    const int64_t row = tile / columns * kTileSide, output = tile % columns * kTileSide;
    // The row and the inputs of x that this thread fetches.
    const int place = thread / 4, depth = thread % 4 * 4;
    const bool has_row = row + place < p.rows.count;
    long long at[kTilePlaces] = {};
    if (has_row) p.rows.locate(row + place, at);
    const T* const x = static_cast<const T*>(p.x) + at[kInputRows];
    // The column and the inputs of the weight that it fetches: contiguous ones if the weight has
    // them.
    const bool turned = p.input_stride == 1;
    const int column = turned ? place : thread % kTileSide;
    const int first = turned ? depth : thread / kTileSide * 4;
    const bool has_column = output + column < p.outputs;
    float sum[kEach][kEach] = {};
    for (int64_t k = 0; k < p.inputs; k += kDepth) {
      OPDOCK_UNROLL
      for (int i = 0; i < 4; ++i) {
        const bool has_x = has_row && k + depth + i < p.inputs;
        left[(depth + i) * kStride + place] = has_x ? to_float(x[k + depth + i]) : 0.0f;
        const bool has_weight = has_column && k + first + i < p.inputs;
        right[(first + i) * kStride + column] =
            has_weight ? weight_at(p, k + first + i, output + column) : 0.0f;
      }
      block_barrier();
      OPDOCK_UNROLL
      for (int d = 0; d < kDepth; ++d) {
        const Packed<float> a = {load16(left + d * kStride + down)};
        const Packed<float> b = {load16(right + d * kStride + across)};
        OPDOCK_UNROLL
        for (int i = 0; i < kEach; ++i) {
          OPDOCK_UNROLL
          for (int j = 0; j < kEach; ++j) sum[i][j] = opdock::fma(a.get(i), b.get(j), sum[i][j]);
        }
      }
      block_barrier();
    }
    for (int i = 0; i < kEach; ++i) {
      if (row + down + i >= p.rows.count) continue;
      for (int j = 0; j < kEach; ++j)
        if (output + across + j < p.outputs)
          finish<T>(p, row + down + i, output + across + j, sum[i][j]);
    }
  }
}

}  // namespace linear
