// Converts 8-bit numbers to floats, and the four in a word to pairs of 16-bit elements: int8, and
// the float8 format E4M3 of OCP, which has no infinity, and whose NaNs are 0x7f and 0xff.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/dtype.cuh"

namespace opdock {

// Converts the lowest byte of `byte`. An integer in the last bits of 2^23 makes a float without the
// conversion instruction, of which a multiprocessor executes few at once.
OPDOCK_DEVICE float int8_to_float(uint32_t byte) {
  return bits_float(0x4b000000u | ((byte ^ 0x80u) & 0xffu)) - (8388608.0f + 128.0f);
}
OPDOCK_DEVICE float float8_to_float(uint32_t byte) {
  const uint32_t rest = byte & 0x7fu;
  // Read as a float, the same bits are smaller by a factor of 2^120, also for subnormal numbers.
  const uint32_t bits =
      rest == 0x7fu ? 0x7fc00000u : float_bits(bits_float(rest << 20) * bits_float(0x7b800000u));
  return bits_float(bits | (byte & 0x80u) << 24);
}

namespace detail {

template <class T, class ToFloat>
OPDOCK_DEVICE void make_pairs(T type, uint32_t from, uint32_t* low, uint32_t* high,
                              const ToFloat& to_float) {
  *low = floats_to_pair(type, to_float(from), to_float(from >> 8));
  *high = floats_to_pair(type, to_float(from >> 16), to_float(from >> 24));
}

}  // namespace detail

// int8_pairs(T{}, from, &low, &high) and float8_pairs(T{}, from, &low, &high) convert the four
// numbers of a word, the lowest first, exactly to two words of two elements of T each. T is a type
// of 16 bits.
#if !defined(OPDOCK_SOFT) && !OPDOCK_HIP && __CUDA_ARCH__ >= 800
OPDOCK_DEVICE void int8_pairs(half, uint32_t from, uint32_t* low, uint32_t* high) {
  // 0x6400 with a byte in its last bits is the float16 1024 + byte, and each byte is its integer
  // plus 128.
  const uint32_t bytes = from ^ 0x80808080u;
  asm("sub.rn.f16x2 %0, %1, %2;"
      : "=r"(*low)
      : "r"(__byte_perm(bytes, 0x64646464u, 0x4140)), "r"(0x64806480u));
  asm("sub.rn.f16x2 %0, %1, %2;"
      : "=r"(*high)
      : "r"(__byte_perm(bytes, 0x64646464u, 0x4342)), "r"(0x64806480u));
}
// 0x4300 with seven bits in its last bits is the bfloat16 128 + bits. The addend is -128, or -256
// if the sign bit is set.
OPDOCK_DEVICE uint32_t two_int8(uint32_t bytes) {
  uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(pair)
      : "r"((bytes & 0x007f007fu) | 0x43004300u), "r"(0x3f803f80u),
        "r"((bytes & 0x00800080u) | 0xc300c300u));
  return pair;
}
OPDOCK_DEVICE void int8_pairs(bfloat16, uint32_t from, uint32_t* low, uint32_t* high) {
  *low = two_int8(__byte_perm(from, 0, 0x4140));
  *high = two_int8(__byte_perm(from, 0, 0x4342));
}
#else
template <class T>
OPDOCK_DEVICE void int8_pairs(T type, uint32_t from, uint32_t* low, uint32_t* high) {
  detail::make_pairs(type, from, low, high, [](uint32_t byte) { return int8_to_float(byte); });
}
#endif

#if !defined(OPDOCK_SOFT) && !OPDOCK_HIP && __CUDA_ARCH__ >= 890
OPDOCK_DEVICE uint32_t two_float8(uint32_t bytes) {
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(bytes)));
  return pair;
}
OPDOCK_DEVICE void float8_pairs(half, uint32_t from, uint32_t* low, uint32_t* high) {
  *low = two_float8(from);
  *high = two_float8(from >> 16);
}
OPDOCK_DEVICE void float8_pairs(bfloat16 type, uint32_t from, uint32_t* low, uint32_t* high) {
  float number[4];
  pair_to_floats(half{}, two_float8(from), &number[0], &number[1]);
  pair_to_floats(half{}, two_float8(from >> 16), &number[2], &number[3]);
  *low = floats_to_pair(type, number[0], number[1]);
  *high = floats_to_pair(type, number[2], number[3]);
}
#else
template <class T>
OPDOCK_DEVICE void float8_pairs(T type, uint32_t from, uint32_t* low, uint32_t* high) {
  detail::make_pairs(type, from, low, high, [](uint32_t byte) { return float8_to_float(byte); });
}
#endif

}  // namespace opdock
