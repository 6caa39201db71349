// Multiplies 8-bit integers by their group's scale: a thread computes several vectors of 16 bytes
// of the result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dequantize_params.cuh"
#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"

namespace dequantize {

using namespace opdock;

// Returns the integers for a vector of the result, from element `first` on, as bytes of a word.
template <int Size>
OPDOCK_DEVICE Unit<Size> load_integers(const Params& p, int64_t first) {
  if (p.aligned && first + Size <= p.numel) return load_unit<Size>(p.q + first);
  Unit<Size> word = 0;
  OPDOCK_UNROLL
  for (int k = 0; k < Size; ++k)
    if (first + k < p.numel)
      word |= static_cast<Unit<Size>>(static_cast<unsigned char>(p.q[first + k])) << 8 * k;
  return word;
}

OPDOCK_DEVICE int64_t group_of(const Params& p, int64_t first) {
  if (p.group == 1) return first;
  return static_cast<int64_t>(multiply_high(static_cast<uint64_t>(first), p.factor) >> p.shift);
}

// Writes the integers times their scales. `scale` is that of the first one's group, `group`.
template <class T>
OPDOCK_DEVICE void finish(const Params& p, int64_t first, int64_t group, float scale,
                          Unit<vector_size<T>> word) {
  constexpr int kSize = vector_size<T>;
  float value[kSize];
  int64_t left = p.even ? kSize + 1 : (group + 1) * p.group - first;  // elements left in the group
  OPDOCK_UNROLL
  for (int k = 0; k < kSize; ++k) {
    if (left == 0 && first + k < p.numel) {
      scale = p.scale[++group];
      left = p.group;
    }
    --left;
    value[k] = int8_to_float(static_cast<uint32_t>(word >> 8 * k)) * scale;
  }
  Packed<T> piece;
  from_floats(value, &piece);
  T* const out = static_cast<T*>(p.out) + first;
  if (p.aligned && first + kSize <= p.numel) {
    store_piece(out, piece);
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k)
      if (first + k < p.numel) out[k] = piece.get(k);
  }
}

template <class T>
OPDOCK_KERNEL(kThreads)
dequantize(Params p) {
  pdl_wait_and_trigger();
  constexpr int kSize = vector_size<T>;
  const int64_t begin = (block_index() * kThreads * kVectors + thread_index()) * kSize;
  Unit<kSize> word[kVectors];
  int64_t group[kVectors];
  float scale[kVectors];
  // Only a quarter or half as many bytes are read as written, so all reads are issued first.
  OPDOCK_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t first = begin + i * (kThreads * kSize);
    word[i] = 0;
    if (first < p.numel) {
      word[i] = load_integers<kSize>(p, first);
      group[i] = group_of(p, first);
      scale[i] = p.scale[group[i]];
    }
  }
  OPDOCK_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t first = begin + i * (kThreads * kSize);
    if (first < p.numel) finish<T>(p, first, group[i], scale[i], word[i]);
  }
}

}  // namespace dequantize
