// Products of small matrices of 16-bit elements, summed in float, by 32 lanes together: what tensor
// cores do.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/dtype.cuh"
#include "opdock/warp.cuh"

namespace opdock {

// Two elements of 16 bits from two words: their low halves, or their high ones; a's is the first.
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

// Whether the target has them for all of this: NVIDIA's from sm_80 on. Code that multiplies so is
// compiled only where this is true, by if constexpr.
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
#elif defined(OPDOCK_SOFT)
template <class T>
OPDOCK_DEVICE void multiply_add_words(T type, float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
  const int lane = thread_index() & 31;
  for (int pair = 0; pair < 8; ++pair) {  // of the dimension that is summed over
    const int at = pair % 4, row = at + (lane & ~3), column = at + lane % 4 * 8;
    float x[2][2], y[2][2];
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      pair_to_floats(type, shuffle(pair < 4 ? a[i] : a[2 + i], row), &x[i][0], &x[i][1]);
      pair_to_floats(type, shuffle(pair < 4 ? b0 : b1, column + 4 * i), &y[i][0], &y[i][1]);
    }
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i)
      d[i] = fma(x[i / 2][0], y[i % 2][0], fma(x[i / 2][1], y[i % 2][1], d[i]));
  }
}
#endif

// D += A B with A of 16 x 16 elements of T, B of 16 x 8 and D of 16 x 8 floats. Lane 4 g + t holds,
// each word two elements that follow each other in a row of A, in a column of B:
//   a: rows g, g + 8, g, g + 8 of A, columns 2 t (twice) and 2 t + 8 (twice);
//   b0, b1: column g of B, rows 2 t and 2 t + 8;
//   d: row g of D, columns 2 t and 2 t + 1, and the same of row g + 8.
// All lanes of the 32 take part. The order of summation is the hardware's.
template <class T>
OPDOCK_DEVICE void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_add_words(T{}, d, a, b0, b1);
}

}  // namespace opdock
