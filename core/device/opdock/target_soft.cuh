// The vocabulary on the software GPU, which compiles device code as C++ for the CPU and executes
// it. The names are those of target.cuh, where they are explained. The engine of the software GPU
// (core/softgpu/engine) provides softgpu/device_calls.h, and sees each load and store of memory as
// it happens.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#if defined(OPDOCK_SOFT)

#include "softgpu/device_calls.h"

#define OPDOCK_DEVICE inline __attribute__((always_inline))
// The code that launches the kernel ensures the bound.
#define OPDOCK_KERNEL(max_threads) void
#define OPDOCK_KERNEL_BLOCKS(max_threads, min_blocks) void
#define OPDOCK_SHARED(type, name, count)                          \
  static constexpr char opdock_site_##name = 0;                   \
  using opdock_array_##name = type[count];                        \
  opdock_array_##name& name = *static_cast<opdock_array_##name*>( \
      softgpu_shared(&opdock_site_##name, sizeof(opdock_array_##name), alignof(type)))
#if defined(__clang__)
#define OPDOCK_UNROLL _Pragma("unroll")
#else
#define OPDOCK_UNROLL _Pragma("GCC unroll 8")
#endif
#define OPDOCK_HIP (OPDOCK_SOFT_ARCH == 0)
#define OPDOCK_HAS_PAIRS 0

namespace opdock {

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int32_t = int;
using int64_t = long long;
using uint64_t = unsigned long long;

}  // namespace opdock
using opdock::int32_t;
using opdock::int64_t;
using opdock::uint16_t;
using opdock::uint32_t;
using opdock::uint64_t;
using opdock::uint8_t;
namespace opdock {

OPDOCK_DEVICE constexpr int warp_width() {
  return OPDOCK_SOFT_WARP;
}

OPDOCK_DEVICE int thread_index() {
  return static_cast<int>(softgpu::this_lane()->thread[0]);
}
OPDOCK_DEVICE int thread_index_y() {
  return static_cast<int>(softgpu::this_lane()->thread[1]);
}
OPDOCK_DEVICE int thread_index_z() {
  return static_cast<int>(softgpu::this_lane()->thread[2]);
}
OPDOCK_DEVICE int block_threads() {
  return static_cast<int>(softgpu::this_lane()->threads[0]);
}
OPDOCK_DEVICE int block_threads_y() {
  return static_cast<int>(softgpu::this_lane()->threads[1]);
}
OPDOCK_DEVICE int block_threads_z() {
  return static_cast<int>(softgpu::this_lane()->threads[2]);
}
OPDOCK_DEVICE int64_t block_index() {
  return softgpu::this_lane()->block[0];
}
OPDOCK_DEVICE int64_t block_index_y() {
  return softgpu::this_lane()->block[1];
}
OPDOCK_DEVICE int64_t block_index_z() {
  return softgpu::this_lane()->block[2];
}
OPDOCK_DEVICE int64_t grid_blocks() {
  return softgpu::this_lane()->blocks[0];
}
OPDOCK_DEVICE int64_t grid_blocks_y() {
  return softgpu::this_lane()->blocks[1];
}
OPDOCK_DEVICE int64_t grid_blocks_z() {
  return softgpu::this_lane()->blocks[2];
}

OPDOCK_DEVICE void block_barrier() {
  softgpu_block_barrier();
}
OPDOCK_DEVICE void warp_barrier() {
  softgpu_warp(softgpu::WarpOp::kBarrier, 0, 0);
}

OPDOCK_DEVICE uint32_t funnel_right(uint32_t low, uint32_t high, int bits) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> bits);
}

OPDOCK_DEVICE uint32_t float_bits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
OPDOCK_DEVICE float bits_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

OPDOCK_DEVICE uint32_t shuffle_xor(uint32_t value, int mask) {
  return static_cast<uint32_t>(softgpu_warp(softgpu::WarpOp::kShuffleXor, value, mask));
}
OPDOCK_DEVICE float shuffle_xor(float value, int mask) {
  return bits_float(shuffle_xor(float_bits(value), mask));
}
OPDOCK_DEVICE float shuffle(float value, int lane) {
  return bits_float(
      static_cast<uint32_t>(softgpu_warp(softgpu::WarpOp::kShuffle, float_bits(value), lane)));
}

template <typename T>
OPDOCK_DEVICE T* dynamic_shared() {
  return static_cast<T*>(softgpu_dynamic_shared());
}

// Computed in integers, because not every compiler has a binary16 type.
OPDOCK_DEVICE float half_bits_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return bits_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // Read as a float, the same bits are smaller by a factor of 2^112, also for subnormal numbers.
  return bits_float(sign | float_bits(bits_float(rest << 13) * 0x1p112f));
}
OPDOCK_DEVICE uint16_t float_to_half_bits(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
  if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  // Below the smallest normal number the addition of 0.5 rounds to multiples of 2^-24.
  if (rest < 0x38800000u)
    return static_cast<uint16_t>(sign | (float_bits(bits_float(rest) + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13));
}
OPDOCK_DEVICE uint16_t float_to_bfloat16_bits(float value) {
  const uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

OPDOCK_DEVICE float exp(float x) {
  return __builtin_expf(x);
}
OPDOCK_DEVICE float exp2(float x) {
  const float value = __builtin_exp2f(x);
  return value < 0x1p-126f ? 0.0f : value;
}
OPDOCK_DEVICE float expm1(float x) {
  return __builtin_expm1f(x);
}
OPDOCK_DEVICE float log(float x) {
  return __builtin_logf(x);
}
OPDOCK_DEVICE float sqrt(float x) {
  return __builtin_sqrtf(x);
}
OPDOCK_DEVICE float rcp(float x) {
  const float value = 1.0f / x;
  return __builtin_fabsf(value) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : value;
}
OPDOCK_DEVICE float tanh(float x) {
  return __builtin_tanhf(x);
}
OPDOCK_DEVICE float erf(float x) {
  return __builtin_erff(x);
}
OPDOCK_DEVICE float rsqrt(float x) {
  return 1.0f / __builtin_sqrtf(x);
}
OPDOCK_DEVICE float max(float a, float b) {
  return __builtin_fmaxf(a, b);
}
OPDOCK_DEVICE float max_or_nan(float a, float b) {
  return a < b || b != b ? b : a;
}
OPDOCK_DEVICE float min(float a, float b) {
  return __builtin_fminf(a, b);
}
OPDOCK_DEVICE float abs(float x) {
  return __builtin_fabsf(x);
}
OPDOCK_DEVICE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
OPDOCK_DEVICE float infinity() {
  return bits_float(0x7f800000u);
}

OPDOCK_DEVICE float opaque_value(float x) {
  return x;
}
OPDOCK_DEVICE uint64_t multiply_high(uint64_t a, uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<uint64_t>(Wide{a} * b >> 64);
}
OPDOCK_DEVICE uint32_t multiply_high(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}

OPDOCK_DEVICE void trap() {
  softgpu_trap();
}

struct alignas(16) Bytes16 {
  uint32_t word[4];
};
OPDOCK_DEVICE Bytes16 load16(const void* from) {
  Bytes16 value;
  softgpu_move16(&value, from);
  return value;
}
OPDOCK_DEVICE void store16(void* to, const Bytes16& value) {
  softgpu_move16(to, &value);
}
OPDOCK_DEVICE void store16_if(bool wanted, void* to, const Bytes16& value) {
  if (wanted) store16(to, value);
}

}  // namespace opdock

#endif
