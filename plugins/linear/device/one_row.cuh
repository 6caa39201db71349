// The product of one row on a GPU: each weight is read once, and multiplied as a float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "int8.cuh"

namespace linear {

// p.team warps of a block compute `Outputs` outputs together. The weight has x's dtype, and its
// inputs are contiguous.
template <class T, int Outputs>
OPDOCK_KERNEL(kTileThreads)
one_row(TileParams p) {
  constexpr int kWarp = warp_width(), kWarps = kTileThreads / kWarp, kSize = vector_size<T>;
  constexpr int kAhead = 4;  // vectors of each output that are loaded at once
  const int lane = thread_index() % kWarp, warp = thread_index() / kWarp, part = warp % p.team;
  const int64_t output = (block_index() * (kWarps / p.team) + warp / p.team) * Outputs;
  pdl_wait_and_trigger();
  const T* weight[Outputs];
  OPDOCK_UNROLL
  for (int i = 0; i < Outputs; ++i) {
    const int64_t at = output + i < p.outputs ? output + i : p.outputs - 1;
    weight[i] = static_cast<const T*>(p.weight) + at * p.output_stride;
  }
  const T* const x = static_cast<const T*>(p.x);
  const int64_t first = part * kWarp + lane, step = p.team * kWarp;
  float sum[Outputs] = {};
  if (p.vectors) {
    for (int64_t k = first * kSize; k < p.inputs; k += kAhead * step * kSize) {
      Packed<T> weights[kAhead][Outputs], piece[kAhead];
      OPDOCK_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int64_t at = k + a * step * kSize;
        if (at >= p.inputs) continue;
        OPDOCK_UNROLL
        for (int i = 0; i < Outputs; ++i) load_piece(weight[i] + at, &weights[a][i]);
        load_piece(x + at, &piece[a]);
      }
      OPDOCK_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        if (k + a * step * kSize >= p.inputs) continue;
        float value[kSize], of_weight[kSize];
        to_floats(piece[a], value);
        OPDOCK_UNROLL
        for (int i = 0; i < Outputs; ++i) {
          to_floats(weights[a][i], of_weight);
          OPDOCK_UNROLL
          for (int j = 0; j < kSize; ++j) sum[i] = opdock::fma(value[j], of_weight[j], sum[i]);
        }
      }
    }
  } else {
    for (int64_t k = first; k < p.inputs; k += step) {
      const float value = to_float(x[k]);
      OPDOCK_UNROLL
      for (int i = 0; i < Outputs; ++i) sum[i] = opdock::fma(value, to_float(weight[i][k]), sum[i]);
    }
  }
  OPDOCK_SHARED(float, parts, kWarps* Outputs);
  float mine = 0;
  OPDOCK_UNROLL
  for (int i = 0; i < Outputs; ++i) {
    const float all = warp_reduce<Sum>(sum[i]);
    if (lane == i) mine = all;
  }
  if (p.team > 1) {
    if (lane < Outputs) parts[warp * Outputs + lane] = mine;
    block_barrier();
    if (part > 0) return;
    if (lane < Outputs)
      for (int i = 1; i < p.team; ++i) mine += parts[(warp + i) * Outputs + lane];
  }
  if (lane < Outputs && output + lane < p.outputs) finish<T>(p, 0, output + lane, mine);
}

}  // namespace linear
