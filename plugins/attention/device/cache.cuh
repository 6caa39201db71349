// Keys and values of 8 bits: what a word of four of them means.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_params.cuh"
#include "opdock/device.cuh"

namespace attention {

using namespace opdock;

OPDOCK_DEVICE float int8_to_float(uint32_t byte) {
  // 2^23 + 128 + the number, whose last bits are the number's.
  return bits_float(0x4b000000u | ((byte ^ 0x80u) & 0xffu)) - 8388736.0f;
}
// Of OCP's E4M3: no infinity, NaN is 0x7f.
OPDOCK_DEVICE float float8_to_float(uint32_t byte) {
  const uint32_t rest = byte & 0x7fu;
  // As a float the same bits are smaller by 2^120, subnormal numbers too.
  const uint32_t bits =
      rest == 0x7fu ? 0x7fc00000u : float_bits(bits_float(rest << 20) * bits_float(0x7b800000u));
  return bits_float(bits | (byte & 0x80u) << 24);
}
template <int Kind>
OPDOCK_DEVICE float byte_to_float(uint32_t byte) {
  if constexpr (Kind == kInt8)
    return int8_to_float(byte);
  else
    return float8_to_float(byte);
}

// Elements of keys and values in 16 bytes, as words of two elements of T.
template <class T, int Kind>
struct Pairs {
  static constexpr int kElements = Kind == kSame ? 8 : 16;
  uint32_t word[kElements / 2];

  OPDOCK_DEVICE explicit Pairs(const Bytes16& bytes) {
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t from = bytes.word[i];
      if constexpr (Kind == kSame) {
        word[i] = from;
      } else {
        OPDOCK_UNROLL
        for (int j = 0; j < 2; ++j)
          word[2 * i + j] = floats_to_pair(T{}, byte_to_float<Kind>(from >> (16 * j)),
                                           byte_to_float<Kind>(from >> (16 * j + 8)));
      }
    }
  }
};

}  // namespace attention
