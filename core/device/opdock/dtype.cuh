// Element types of device memory and their conversion to and from float, in which kernels compute.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

namespace opdock {

struct half {  // IEEE binary16
  uint16_t bits;
  OPDOCK_DEVICE explicit operator float() const { return half_bits_to_float(bits); }
};
struct bfloat16 {
  uint16_t bits;
  OPDOCK_DEVICE explicit operator float() const {
    return bits_float(static_cast<uint32_t>(bits) << 16);
  }
};

OPDOCK_DEVICE float to_float(float value) {
  return value;
}
OPDOCK_DEVICE float to_float(half value) {
  return static_cast<float>(value);
}
OPDOCK_DEVICE float to_float(bfloat16 value) {
  return static_cast<float>(value);
}

// Rounds to nearest, ties to even.
template <typename T>
OPDOCK_DEVICE T from_float(float value);
template <>
OPDOCK_DEVICE float from_float<float>(float value) {
  return value;
}
template <>
OPDOCK_DEVICE half from_float<half>(float value) {
  return {float_to_half_bits(value)};
}
template <>
OPDOCK_DEVICE bfloat16 from_float<bfloat16>(float value) {
  return {float_to_bfloat16_bits(value)};
}

// Pairs of 16-bit elements in one word, the first in the low half: conversions to floats, and from
// floats with the rounding of from_float(), and the larger of each two elements (the other one if
// one is NaN).
#if OPDOCK_HAS_PAIRS
OPDOCK_DEVICE void pair_to_floats(half, uint32_t pair, float* low, float* high) {
  half_pair_to_floats(pair, low, high);
}
OPDOCK_DEVICE void pair_to_floats(bfloat16, uint32_t pair, float* low, float* high) {
  bfloat16_pair_to_floats(pair, low, high);
}
OPDOCK_DEVICE uint32_t floats_to_pair(half, float low, float high) {
  return floats_to_half_pair(low, high);
}
OPDOCK_DEVICE uint32_t floats_to_pair(bfloat16, float low, float high) {
  return floats_to_bfloat16_pair(low, high);
}
OPDOCK_DEVICE uint32_t max_pair(half, uint32_t a, uint32_t b) {
  return max_half_pair(a, b);
}
OPDOCK_DEVICE uint32_t max_pair(bfloat16, uint32_t a, uint32_t b) {
  return max_bfloat16_pair(a, b);
}
#else
template <typename T>
OPDOCK_DEVICE void pair_to_floats(T, uint32_t pair, float* low, float* high) {
  *low = to_float(T{static_cast<uint16_t>(pair)});
  *high = to_float(T{static_cast<uint16_t>(pair >> 16)});
}
template <typename T>
OPDOCK_DEVICE uint32_t floats_to_pair(T, float low, float high) {
  return from_float<T>(low).bits | static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}
template <typename T>
OPDOCK_DEVICE uint32_t max_pair(T type, uint32_t a, uint32_t b) {
  float x[2], y[2];
  pair_to_floats(type, a, &x[0], &x[1]);
  pair_to_floats(type, b, &y[0], &y[1]);
  return floats_to_pair(type, max(x[0], y[0]), max(x[1], y[1]));
}
#endif

}  // namespace opdock
