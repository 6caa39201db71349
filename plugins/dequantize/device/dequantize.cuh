// Integers of 8 bits times their group's scale: 16 bytes of the result a thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dequantize_params.cuh"
#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"

namespace dequantize {

using namespace opdock;

// A byte's integer: as the last bits of 2^23 it is a float, without the conversion of which a
// multiprocessor does few at once.
OPDOCK_DEVICE float byte_to_float(uint32_t byte) {
  return bits_float(0x4b000000u | (byte ^ 0x80u)) - (8388608.0f + 128.0f);
}

template <class T>
OPDOCK_KERNEL(kThreads)
dequantize(Params p) {
  launch_turn();
  constexpr int kSize = vector_size<T>;
  const int64_t first = (block_index() * kThreads + thread_index()) * kSize;
  if (first >= p.numel) return;
  const bool is_whole = p.aligned && first + kSize <= p.numel;
  uint32_t q[kSize] = {};
  if (is_whole) {
    const Unit<kSize> word = load_unit<kSize>(p.q + first);
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) q[k] = static_cast<uint32_t>(word >> 8 * k & 0xff);
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k)
      if (first + k < p.numel) q[k] = static_cast<unsigned char>(p.q[first + k]);
  }
  int64_t group = first;
  if (p.group > 1)
    group = static_cast<int64_t>(multiply_high(static_cast<uint64_t>(first), p.factor) >> p.shift);
  float scale = p.scale[group], value[kSize];
  if (p.even) {
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) value[k] = byte_to_float(q[k]) * scale;
  } else {
    int64_t left = (group + 1) * p.group - first;  // of the group, from the first element on
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) {
      if (left == 0 && first + k < p.numel) {
        scale = p.scale[++group];
        left = p.group;
      }
      --left;
      value[k] = byte_to_float(q[k]) * scale;
    }
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
