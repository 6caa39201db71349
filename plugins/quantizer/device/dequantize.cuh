// Dequantises: a thread computes several vectors of 16 bytes of the result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"

namespace quantizer {

// Writes the vector that begins at element `first`.
template <class T>
OPDOCK_DEVICE void store_numbers(T* out, int64_t first, int64_t numel, bool is_aligned,
                                 const float (&number)[vector_size<T>]) {
  Packed<T> piece;
  from_floats(number, &piece);
  if (is_aligned && first + vector_size<T> <= numel) return store_piece(out + first, piece);
  OPDOCK_UNROLL
  for (int k = 0; k < vector_size<T>; ++k)
    if (first + k < numel) out[first + k] = piece.get(k);
}

OPDOCK_DEVICE float dequantized(float q, const GroupScale& scale, int scales_offset) {
  return scales_offset ? (q - scale.offset) * scale.step : fma(q, scale.step, scale.offset);
}

template <class T, int Bits>
OPDOCK_KERNEL(kVectorThreads)
dequantize(DequantizeParams p) {
  constexpr int kSize = vector_size<T>, kBytes = kSize * Bits / 8;
  const Source& from = p.from;
  pdl_wait_and_trigger();
  const int64_t begin = (block_index() * kVectorThreads * kVectors + thread_index()) * kSize;
  Unit<kBytes> word[kVectors];
  // Fewer bytes are read than written, so all reads are issued first.
  OPDOCK_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t first = begin + i * (kVectorThreads * kSize);
    word[i] = 0;
    if (first < from.numel)
      word[i] = load_integers<Bits, kBytes>(from.q + first / (8 / Bits), from.numel - first,
                                            from.aligned != 0);
  }
  OPDOCK_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t first = begin + i * (kVectorThreads * kSize);
    if (first >= from.numel) break;
    int64_t group = quotient(from.length, first);
    GroupScale scale(from, group);
    // The elements that are left in the group.
    int64_t left = from.even ? kSize + 1 : (group + 1) * from.length.divisor - first;
    float number[kSize];
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) {
      if (left == 0 && first + k < from.numel) {
        scale = GroupScale(from, ++group);
        left = from.length.divisor;
      }
      --left;
      number[k] = dequantized(signed_number<Bits>(word[i], k), scale, p.scales_offset);
    }
    store_numbers(static_cast<T*>(p.out), first, from.numel, p.aligned != 0, number);
  }
}

// Divides in float16 and adds in float16: each result is rounded.
template <int Bits>
OPDOCK_KERNEL(kVectorThreads)
dequantize_unsigned(UnsignedParams p) {
  constexpr int kSize = vector_size<opdock::half>;
  pdl_wait_and_trigger();
  const int64_t begin = (block_index() * kVectorThreads * kVectors + thread_index()) * kSize;
  Unit<Bits> word[kVectors];
  OPDOCK_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t first = begin + i * (kVectorThreads * kSize);
    word[i] = 0;
    if (first < p.numel)
      word[i] =
          load_integers<Bits, Bits>(p.q + first / (8 / Bits), p.numel - first, p.aligned != 0);
  }
  OPDOCK_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t first = begin + i * (kVectorThreads * kSize);
    if (first >= p.numel) break;
    int64_t group = quotient(p.length, first);
    float scale = to_float(opdock::half{p.scale[group]}),
          least = to_float(opdock::half{p.least[group]});
    int64_t left = p.even ? kSize + 1 : (group + 1) * p.length.divisor - first;
    float number[kSize];
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) {
      if (left == 0 && first + k < p.numel) {
        ++group;
        scale = to_float(opdock::half{p.scale[group]});
        least = to_float(opdock::half{p.least[group]});
        left = p.length.divisor;
      }
      --left;
      const float ratio = unsigned_number<Bits>(word[i], k) / scale;
      number[k] = to_float(from_float<opdock::half>(ratio)) + least;
    }
    store_numbers(reinterpret_cast<opdock::half*>(p.out), first, p.numel, p.aligned != 0, number);
  }
}

}  // namespace quantizer
