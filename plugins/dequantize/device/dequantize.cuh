// Integers of 8 bits times their group's scale: 16 bytes of the result a thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dequantize_params.cuh"
#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"

namespace dequantize {

using namespace opdock;

template <class T>
OPDOCK_KERNEL(kThreads)
dequantize(Params p) {
  launch_turn();
  constexpr int kSize = vector_size<T>;
  const int64_t first = (block_index() * kThreads + thread_index()) * kSize;
  if (first >= p.numel) return;
  const bool is_whole = p.aligned && first + kSize <= p.numel;
  signed char q[kSize] = {};
  if (is_whole) {
    const Unit<kSize> word = load_unit<kSize>(p.q + first);
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) q[k] = static_cast<signed char>(word >> 8 * k & 0xff);
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k)
      if (first + k < p.numel) q[k] = p.q[first + k];
  }
  int64_t group = first;
  if (p.group > 1)
    group = static_cast<int64_t>(multiply_high(static_cast<uint64_t>(first), p.factor) >> p.shift);
  int64_t left = (group + 1) * p.group - first;  // of the group, from the first element on
  float scale = p.scale[group], value[kSize];
  OPDOCK_UNROLL
  for (int k = 0; k < kSize; ++k) {
    if (left == 0 && first + k < p.numel) {
      scale = p.scale[++group];
      left = p.group;
    }
    --left;
    value[k] = static_cast<float>(q[k]) * scale;
  }
  Packed<T> piece;
  from_floats(value, &piece);
  T* const out = static_cast<T*>(p.out) + first;
  if (is_whole) {
    store_piece(out, piece);
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k)
      if (first + k < p.numel) out[k] = piece.get(k);
  }
}

}  // namespace dequantize
