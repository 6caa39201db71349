// Element types of device memory and their conversion to and from float, in which kernels compute.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

namespace opdock {

struct half {  // IEEE binary16
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

OPDOCK_DEVICE float to_float(float value) {
  return value;
}
OPDOCK_DEVICE float to_float(half value) {
  return half_bits_to_float(value.bits);
}
OPDOCK_DEVICE float to_float(bfloat16 value) {
  return bits_float(static_cast<uint32_t>(value.bits) << 16);
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
#endif

}  // namespace opdock
