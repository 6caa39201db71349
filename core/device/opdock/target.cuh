// What a GPU's compiler gives, under names of our own: the only file with raw intrinsics. Another
// target (hipRTC, the software GPU) is another branch here; nothing above it changes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define OPDOCK_DEVICE __device__ __forceinline__
// A kernel that is launched with at most max_threads threads a block.
#define OPDOCK_KERNEL(max_threads) __global__ void __launch_bounds__(max_threads)
// An array in memory shared by the block, uninitialised; at function scope.
#define OPDOCK_SHARED(type, name, count) __shared__ type name[count]
// Unrolls the loop that follows; its trip count is a constant.
#define OPDOCK_UNROLL _Pragma("unroll")

namespace opdock {

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int32_t = int;
using int64_t = long long;
using uint64_t = unsigned long long;

// Threads that execute together: 32 on NVIDIA GPUs. A parameter of the target, never to be assumed.
OPDOCK_DEVICE constexpr int warp_width() {
  return 32;
}

OPDOCK_DEVICE int thread_index() {
  return static_cast<int>(threadIdx.x);
}
OPDOCK_DEVICE int thread_index_y() {
  return static_cast<int>(threadIdx.y);
}
OPDOCK_DEVICE int block_threads() {
  return static_cast<int>(blockDim.x);
}
OPDOCK_DEVICE int block_threads_y() {
  return static_cast<int>(blockDim.y);
}
OPDOCK_DEVICE int64_t block_index() {
  return static_cast<int64_t>(blockIdx.x);
}
OPDOCK_DEVICE int64_t block_index_y() {
  return static_cast<int64_t>(blockIdx.y);
}
OPDOCK_DEVICE int64_t grid_blocks() {
  return static_cast<int64_t>(gridDim.x);
}

// Every thread of the block waits until all are here, and then sees what the others have written to
// shared and global memory.
OPDOCK_DEVICE void block_barrier() {
  __syncthreads();
}
// The same for the threads of one warp.
OPDOCK_DEVICE void warp_barrier() {
  __syncwarp();
}

// The value of the lane whose number differs in the bits of `mask`. All lanes of the warp take
// part.
OPDOCK_DEVICE float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
OPDOCK_DEVICE uint32_t shuffle_xor(uint32_t value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
// The value of lane `lane`.
OPDOCK_DEVICE float shuffle(float value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// The launch's dynamic shared memory, 16-byte aligned.
template <typename T>
OPDOCK_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char opdock_dynamic_shared[];
  return reinterpret_cast<T*>(opdock_dynamic_shared);
}

OPDOCK_DEVICE uint32_t float_bits(float value) {
  return __float_as_uint(value);
}
OPDOCK_DEVICE float bits_float(uint32_t bits) {
  return __uint_as_float(bits);
}

// IEEE binary16 bits; to binary16 rounds to nearest, ties to even.
OPDOCK_DEVICE float half_bits_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
OPDOCK_DEVICE uint16_t float_to_half_bits(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
// Rounds to nearest, ties to even; NaN stays NaN.
OPDOCK_DEVICE uint16_t float_to_bfloat16_bits(float value) {
#if __CUDA_ARCH__ >= 800
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// e^x to about 2 ulp; 0 for -infinity.
OPDOCK_DEVICE float exp(float x) {
  return expf(x);
}
// 2^x to 2 ulp, subnormal results flushed to 0.
OPDOCK_DEVICE float exp2(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
OPDOCK_DEVICE float sqrt(float x) {
  return sqrtf(x);
}
OPDOCK_DEVICE float rsqrt(float x) {
  return rsqrtf(x);
}
// The larger; the other one if one is NaN.
OPDOCK_DEVICE float max(float a, float b) {
  return fmaxf(a, b);
}
OPDOCK_DEVICE float min(float a, float b) {
  return fminf(a, b);
}
OPDOCK_DEVICE float fma(float a, float b, float c) {
  return fmaf(a, b, c);
}
OPDOCK_DEVICE float infinity() {
  return bits_float(0x7f800000u);
}

// 16 bytes moved by one instruction.
struct alignas(16) Bytes16 {
  uint32_t word[4];
};
OPDOCK_DEVICE Bytes16 load16(const void* from) {
  const uint4 value = *static_cast<const uint4*>(from);
  return {{value.x, value.y, value.z, value.w}};
}
OPDOCK_DEVICE void store16(void* to, const Bytes16& value) {
  *static_cast<uint4*>(to) = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
}

}  // namespace opdock
