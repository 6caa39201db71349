// Code that the CPU's product and the GPU's kernels share: numbers of element types, eight-bit
// floats, and the operations on a sum before it is stored.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace opdock::gemm {

// Element types, by the numbers that kernels get.
enum Element : int {
  kFloat32 = 0,
  kFloat16 = 1,
  kBfloat16 = 2,
  kInt8 = 3,
  kInt32 = 4,
  kE4m3 = 5,
  kE5m2 = 6,
  kNoElement = 7,
};

enum Activation : int { kNone, kRelu, kGelu, kGeluTanh, kSilu };  // OPDOCK_GEMM_NONE, …

// Columns of a row per GPU thread in the kernel that finishes a library's sums.
inline constexpr int kFinishColumns = 8;

OPDOCK_HOST_DEVICE constexpr int bytes_of(int element) {
  return element == kFloat32 || element == kInt32      ? 4
         : element == kFloat16 || element == kBfloat16 ? 2
                                                       : 1;
}

// A batch of matrices with strides in elements.
struct Operand {
  const void* data;
  const float* scale;  // NULL: the scale is 1
  long long row_stride;
  long long column_stride;
  long long batch_stride;
  int element;
  int scales;      // scale has one number for each row (for B: for each column)
  int transposed;  // stored transposed
};

// The operations on the sums of a product before they are stored.
struct Finish {
  Operand c;  // data is NULL if there is no C
  const void* bias;
  int bias_element;
  int activation;
  int residual;  // C is added after the activation
  float alpha;
  float beta;
};

struct Product {
  Operand a, b, d;
  Finish finish;
  long long m, n, k, batch;
};

// Converts an eight-bit float, given by its bits, to a float. from_bits: makes a float from its
// bits.
template <class FromBits>
OPDOCK_HOST_DEVICE float e4m3_to_float(unsigned bits, FromBits from_bits) {
  const unsigned sign = (bits & 0x80u) << 24, rest = bits & 0x7fu;
  if (rest == 0x7fu) return from_bits(sign | 0x7fc00000u);
  // Multiplying by 2^120 corrects the exponent's bias and normalises subnormal numbers.
  return from_bits(sign | rest << 20) * from_bits(0x7b800000u);
}
template <class FromBits>
OPDOCK_HOST_DEVICE float e5m2_to_float(unsigned bits, FromBits from_bits) {
  const unsigned sign = (bits & 0x80u) << 24, rest = bits & 0x7fu;
  if (rest >= 0x7cu) return from_bits(sign | 0x7f800000u | (rest & 3u) << 21);
  return from_bits(sign | rest << 21) * from_bits(0x77800000u);
}

// Converts the bits of a float to an eight-bit float. Rounds to nearest, ties to even; a number
// that is too large becomes the largest finite number, as in cuBLASLt. digits: bits of the
// fraction; bias: of the exponent; largest, nan: the bits of the largest number and of a NaN.
OPDOCK_HOST_DEVICE unsigned float_to_eight(unsigned bits, int digits, int bias, unsigned largest,
                                           unsigned nan) {
  const unsigned sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | nan;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  // Number of bits of the 24-bit significand to drop; more for a number below the smallest normal
  // one.
  int drop = 23 - digits;
  if (exponent < 1 - bias) drop += 1 - bias - exponent;
  if (drop > 24) return sign;
  const unsigned significand = (magnitude & 0x7fffffu) | 0x800000u;
  const unsigned half = 1u << (drop - 1);
  unsigned kept = significand >> drop;
  const unsigned rest = significand & ((half << 1) - 1);
  if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;
  // A carry out of the fraction increments the exponent.
  const unsigned result =
      exponent < 1 - bias ? kept : kept + (static_cast<unsigned>(exponent + bias - 1) << digits);
  return sign | (result > largest ? largest : result);
}
OPDOCK_HOST_DEVICE unsigned float_to_e4m3(unsigned bits) {
  return float_to_eight(bits, 3, 7, 0x7eu, 0x7fu);
}
OPDOCK_HOST_DEVICE unsigned float_to_e5m2(unsigned bits) {
  return float_to_eight(bits, 2, 15, 0x7bu, 0x7fu);
}

// Math: provides erf, tanh and exp for a float.
template <class Math>
OPDOCK_HOST_DEVICE float activate(int activation, float x) {
  switch (activation) {
    case kRelu:
      return x > 0.0f || x != x ? x : 0.0f;
    case kGelu:
      return 0.5f * x * (1.0f + Math::erf(x * 0.70710678f));
    case kGeluTanh:
      return 0.5f * x * (1.0f + Math::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case kSilu:
      return x / (1.0f + Math::exp(-x));
    default:
      return x;
  }
}

// Returns an element of D, before D's own scale is applied, from a sum that is already multiplied
// by alpha and the scales.
template <class Math>
OPDOCK_HOST_DEVICE float finish(int activation, bool residual, float value, float bias, float c) {
  value += bias + (residual ? 0.0f : c);
  return activate<Math>(activation, value) + (residual ? c : 0.0f);
}

}  // namespace opdock::gemm
