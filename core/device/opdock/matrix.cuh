// Products of small matrices by tensor cores: 32 lanes together multiply matrices of 16-bit
// elements or of floats, and sum in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/dtype.cuh"
#include "opdock/warp.cuh"

namespace opdock {

// Makes one word of the low, or of the high, halves of two words, each a 16-bit element; the half
// of `a` comes first.
#if defined(OPDOCK_SOFT) || OPDOCK_HIP
OPDOCK_DEVICE uint32_t low_halves(uint32_t a, uint32_t b) {
  return (a & 0xffffu) | b << 16;
}
OPDOCK_DEVICE uint32_t high_halves(uint32_t a, uint32_t b) {
  return a >> 16 | (b & 0xffff0000u);
}
#else
OPDOCK_DEVICE uint32_t low_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x5410);
}
OPDOCK_DEVICE uint32_t high_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x7632);
}
#endif

// Whether the target has tensor cores for all of this: NVIDIA GPUs from sm_80 on. Code that
// multiplies matrices must be compiled only where this is true, by if constexpr.
#if defined(OPDOCK_SOFT)
inline constexpr bool kHasMatrices = OPDOCK_SOFT_ARCH >= 800;
#elif !OPDOCK_HIP && __CUDA_ARCH__ >= 800
inline constexpr bool kHasMatrices = true;
#else
inline constexpr bool kHasMatrices = false;
#endif

#if !defined(OPDOCK_SOFT) && !OPDOCK_HIP && __CUDA_ARCH__ >= 800
OPDOCK_DEVICE void multiply_add_words(half, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
OPDOCK_DEVICE void multiply_add_words(bfloat16, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

OPDOCK_DEVICE void multiply_add_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#elif defined(OPDOCK_SOFT)
// Calls multiply(x, y, sum), which returns the new sum, for each two words of A and B that are
// multiplied.
template <class Multiply>
OPDOCK_DEVICE void multiply_all(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                const Multiply& multiply) {
  const int lane = thread_index() & 31;
  for (int word = 0; word < 8; ++word) {  // a word along the dimension that is summed over
    const int at = word % 4, row = at + (lane & ~3), column = at + lane % 4 * 8;
    uint32_t x[2], y[2];
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      x[i] = shuffle(word < 4 ? a[i] : a[2 + i], row);
      y[i] = shuffle(word < 4 ? b0 : b1, column + 4 * i);
    }
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = multiply(x[i / 2], y[i % 2], d[i]);
  }
}
template <class T>
OPDOCK_DEVICE void multiply_add_words(T type, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
  multiply_all(d, a, b0, b1, [type](uint32_t x, uint32_t y, float sum) {
    float left[2], right[2];
    pair_to_floats(type, x, &left[0], &left[1]);
    pair_to_floats(type, y, &right[0], &right[1]);
    return fma(left[0], right[0], fma(left[1], right[1], sum));
  });
}
OPDOCK_DEVICE void multiply_add_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  multiply_all(d, a, b0, b1, [](uint32_t x, uint32_t y, float sum) {
    return fma(bits_float(x & ~0x1fffu), bits_float(y & ~0x1fffu), sum);
  });
}
#else
OPDOCK_DEVICE void multiply_add_tf32(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) {
  trap();  // kHasMatrices is false
}
#endif

// Computes D += A B. A has 16 x 16 elements of T, B has 16 x 8, and D has 16 x 8 floats. Each word
// of A has two adjacent elements of a row, each word of B two of a column. Lane 4 g + t holds:
//   a: rows g, g + 8, g, g + 8 of A, columns 2 t (twice) and 2 t + 8 (twice);
//   b0, b1: column g of B, rows 2 t and 2 t + 8;
//   d: row g of D, columns 2 t and 2 t + 1, and the same of row g + 8.
// All 32 lanes take part. The hardware decides the order of summation.
template <class T>
OPDOCK_DEVICE void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_add_words(T{}, d, a, b0, b1);
}

OPDOCK_DEVICE uint32_t round_to_tf32(float x) {
#if !defined(OPDOCK_SOFT) && !OPDOCK_HIP && __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  return abs(x) < infinity() ? (float_bits(x) + 0x1000u) & ~0x1fffu : float_bits(x);
#endif
}

// A float as the sum of two numbers of 11 bits, which tensor cores multiply exactly (TF32); they
// ignore the last bits of the second one. If the float is infinite, the second number is 0.
struct TwoParts {
  uint32_t high, low;

  TwoParts() = default;
  OPDOCK_DEVICE explicit TwoParts(float x) : high(round_to_tf32(x)) {
    const float rest = bits_float(high);
    low = float_bits(rest == x ? 0.0f : x - rest);
  }
};

// Computes D += A B. A has 16 x 8, B has 8 x 8, and D has 16 x 8 floats. The error is 2^-21 of each
// product: three products of the parts are added, and the smallest one is left out (Ootomo and
// Yokota 2022). Lane 4 g + t holds:
//   a: rows g, g + 8, g, g + 8 of A, columns t (twice) and t + 4 (twice);
//   b0, b1: column g of B, rows t and t + 4;
//   d: as above. The hardware does not round sums to nearest: keep them short.
OPDOCK_DEVICE void multiply_add(float (&d)[4], const TwoParts (&a)[4], const TwoParts& b0,
                                const TwoParts& b1) {
  const uint32_t high[4] = {a[0].high, a[1].high, a[2].high, a[3].high};
  multiply_add_tf32(d, {a[0].low, a[1].low, a[2].low, a[3].low}, b0.high, b1.high);
  multiply_add_tf32(d, high, b0.low, b1.low);
  multiply_add_tf32(d, high, b0.high, b1.high);
}

}  // namespace opdock
