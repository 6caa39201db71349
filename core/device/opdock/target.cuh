// The intrinsics of GPU compilers, under Opdock's own names. This file, warp.cuh, atomic.cuh,
// bytes.cuh, cluster.cuh, cluster_gather.cuh, copy_async.cuh, launch.cuh, matrix.cuh and
// host_device.cuh are the only ones with raw intrinsics. NVRTC and hipRTC have their branches here;
// target_soft.cuh defines the same names for the software GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(OPDOCK_SOFT)
#include "opdock/target_soft.cuh"
#else

#define OPDOCK_DEVICE __device__ __forceinline__
// A kernel that is launched with at most max_threads threads a block.
#define OPDOCK_KERNEL(max_threads) __global__ void __launch_bounds__(max_threads)
// A kernel as above, of which min_blocks blocks of that size must fit a multiprocessor. The number
// is ignored for HIP, which means something else by it, and before sm_80, where a multiprocessor
// has too few threads.
#if defined(__HIP__) || defined(__HIPCC_RTC__) || __CUDA_ARCH__ < 800
#define OPDOCK_KERNEL_BLOCKS(max_threads, min_blocks) OPDOCK_KERNEL(max_threads)
#else
#define OPDOCK_KERNEL_BLOCKS(max_threads, min_blocks) \
  __global__ void __launch_bounds__(max_threads, min_blocks)
#endif
// An array in memory shared by the block, uninitialised; at function scope.
#define OPDOCK_SHARED(type, name, count) __shared__ type name[count]
// Unrolls the loop that follows; its trip count is a constant.
#define OPDOCK_UNROLL _Pragma("unroll")

#if defined(__HIP__) || defined(__HIPCC_RTC__)
#define OPDOCK_HIP 1
#else
#define OPDOCK_HIP 0
#endif

namespace opdock {

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int32_t = int;
using int64_t = long long;
using uint64_t = unsigned long long;

}  // namespace opdock
// hipRTC has these types in the global namespace, NVRTC does not. Elsewhere they come from
// <cstdint>.
#if defined(__CUDACC_RTC__)
using opdock::int32_t;
using opdock::int64_t;
using opdock::uint16_t;
using opdock::uint32_t;
using opdock::uint64_t;
using opdock::uint8_t;
#endif
namespace opdock {

// The number of threads that execute together: 32 on NVIDIA GPUs and AMD's RDNA, 64 on CDNA. It
// depends on the target: never assume a number.
OPDOCK_DEVICE constexpr int warp_width() {
#if OPDOCK_HIP
  return __AMDGCN_WAVEFRONT_SIZE;
#else
  return 32;
#endif
}

OPDOCK_DEVICE int thread_index() {
  return static_cast<int>(threadIdx.x);
}
OPDOCK_DEVICE int thread_index_y() {
  return static_cast<int>(threadIdx.y);
}
OPDOCK_DEVICE int thread_index_z() {
  return static_cast<int>(threadIdx.z);
}
OPDOCK_DEVICE int block_threads() {
  return static_cast<int>(blockDim.x);
}
OPDOCK_DEVICE int block_threads_y() {
  return static_cast<int>(blockDim.y);
}
OPDOCK_DEVICE int block_threads_z() {
  return static_cast<int>(blockDim.z);
}
OPDOCK_DEVICE int64_t block_index() {
  return static_cast<int64_t>(blockIdx.x);
}
OPDOCK_DEVICE int64_t block_index_y() {
  return static_cast<int64_t>(blockIdx.y);
}
OPDOCK_DEVICE int64_t block_index_z() {
  return static_cast<int64_t>(blockIdx.z);
}
OPDOCK_DEVICE int64_t grid_blocks() {
  return static_cast<int64_t>(gridDim.x);
}
OPDOCK_DEVICE int64_t grid_blocks_y() {
  return static_cast<int64_t>(gridDim.y);
}
OPDOCK_DEVICE int64_t grid_blocks_z() {
  return static_cast<int64_t>(gridDim.z);
}

// Waits until all threads of the block are here; then each sees what the others have written to
// shared and global memory.
OPDOCK_DEVICE void block_barrier() {
  __syncthreads();
}
// Does the same for the threads of one warp.
OPDOCK_DEVICE void warp_barrier() {
#if OPDOCK_HIP
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
  __syncwarp();
#endif
}

#if OPDOCK_HIP
// Returns the value of lane `lane`. The instruction takes the number of a lane as a byte address.
OPDOCK_DEVICE uint32_t shuffle_bits(uint32_t value, int lane) {
  return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(lane << 2, static_cast<int>(value)));
}
OPDOCK_DEVICE int lane_number() {
#if __AMDGCN_WAVEFRONT_SIZE == 64
  return static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)));
#else
  return static_cast<int>(__builtin_amdgcn_mbcnt_lo(~0u, 0u));
#endif
}
#endif

// Returns the value of the lane whose number differs in the bits of `mask`. All lanes of the warp
// take part.
OPDOCK_DEVICE uint32_t shuffle_xor(uint32_t value, int mask) {
#if OPDOCK_HIP
  return shuffle_bits(value, lane_number() ^ mask);
#else
  return __shfl_xor_sync(0xffffffffu, value, mask);
#endif
}
OPDOCK_DEVICE float shuffle_xor(float value, int mask) {
#if OPDOCK_HIP
  return __builtin_bit_cast(float, shuffle_xor(__builtin_bit_cast(uint32_t, value), mask));
#else
  return __shfl_xor_sync(0xffffffffu, value, mask);
#endif
}
// Returns the value of lane `lane`. All lanes of the warp take part.
OPDOCK_DEVICE float shuffle(float value, int lane) {
#if OPDOCK_HIP
  return __builtin_bit_cast(float, shuffle_bits(__builtin_bit_cast(uint32_t, value), lane));
#else
  return __shfl_sync(0xffffffffu, value, lane);
#endif
}

// Returns the launch's dynamic shared memory, aligned to 16 bytes.
template <typename T>
OPDOCK_DEVICE T* dynamic_shared() {
#if OPDOCK_HIP
  extern __shared__ __attribute__((aligned(16))) unsigned char opdock_dynamic_shared[];
#else
  extern __shared__ __align__(16) unsigned char opdock_dynamic_shared[];
#endif
  return reinterpret_cast<T*>(opdock_dynamic_shared);
}

// Returns the lower word of the two words, shifted right together by 0 to 31 bits.
OPDOCK_DEVICE uint32_t funnel_right(uint32_t low, uint32_t high, int bits) {
#if OPDOCK_HIP
  return __builtin_amdgcn_alignbit(high, low, static_cast<uint32_t>(bits));
#else
  return __funnelshift_r(low, high, static_cast<uint32_t>(bits));
#endif
}

OPDOCK_DEVICE uint32_t float_bits(float value) {
  return __float_as_uint(value);
}
OPDOCK_DEVICE float bits_float(uint32_t bits) {
  return __uint_as_float(bits);
}

// Conversions of IEEE binary16 bits. To binary16, they round to nearest, ties to even.
#if OPDOCK_HIP
OPDOCK_DEVICE float half_bits_to_float(uint16_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
OPDOCK_DEVICE uint16_t float_to_half_bits(float value) {
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}
#else
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
#endif
// Rounds to nearest, ties to even; NaN stays NaN.
OPDOCK_DEVICE uint16_t float_to_bfloat16_bits(float value) {
#if !OPDOCK_HIP && __CUDA_ARCH__ >= 800
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// Pairs of elements in one word, the first in the low half. Floats are rounded as those of single
// elements are.
#if !OPDOCK_HIP && __CUDA_ARCH__ >= 800
OPDOCK_DEVICE uint32_t floats_to_half_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
OPDOCK_DEVICE uint32_t floats_to_bfloat16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// The larger of each two elements; the other one if one is NaN.
OPDOCK_DEVICE uint32_t max_half_pair(uint32_t a, uint32_t b) {
  uint32_t pair;
  asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}
OPDOCK_DEVICE uint32_t max_bfloat16_pair(uint32_t a, uint32_t b) {
  uint32_t pair;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}
// Converts a pair to floats. To compilers, asm volatile differs each time, so that they do not keep
// the floats of an earlier pass in registers instead.
OPDOCK_DEVICE void half_pair_to_floats(uint32_t pair, float* low, float* high) {
  asm volatile(
      "{\n"
      ".reg .b16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.f32.f16 %0, l;\n"
      "cvt.f32.f16 %1, h;\n"
      "}"
      : "=f"(*low), "=f"(*high)
      : "r"(pair));
}
OPDOCK_DEVICE void bfloat16_pair_to_floats(uint32_t pair, float* low, float* high) {
  asm volatile(
      "{\n"
      ".reg .b32 l, h;\n"
      "prmt.b32 l, %2, 0, 0x1044;\n"
      "prmt.b32 h, %2, 0, 0x3244;\n"
      "mov.b32 %0, l;\n"
      "mov.b32 %1, h;\n"
      "}"
      : "=f"(*low), "=f"(*high)
      : "r"(pair));
}
#define OPDOCK_HAS_PAIRS 1
#else
#define OPDOCK_HAS_PAIRS 0
#endif

// The following functions are templates, so that their names are not ambiguous after `using
// namespace opdock`: the compiler has functions of its own with these names, which are not
// templates and are then preferred.

// e^x to about 2 ulp; 0 for -infinity.
template <class T>
OPDOCK_DEVICE float exp(T x) {
  return expf(x);
}
// 2^x to 2 ulp, subnormal results flushed to 0.
template <class T>
OPDOCK_DEVICE float exp2(T x) {
#if OPDOCK_HIP
  return exp2f(x);
#else
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
#endif
}
// e^x - 1 to 1 ulp.
template <class T>
OPDOCK_DEVICE float expm1(T x) {
  return expm1f(x);
}
// The natural logarithm to 1 ulp.
template <class T>
OPDOCK_DEVICE float log(T x) {
  return logf(x);
}
template <class T>
OPDOCK_DEVICE float sqrt(T x) {
  return sqrtf(x);
}
// 1 / x to 1 ulp, subnormal results flushed to 0.
OPDOCK_DEVICE float rcp(float x) {
#if OPDOCK_HIP
  return __builtin_amdgcn_rcpf(x);
#else
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
#endif
}
// The hyperbolic tangent to 2 ulp.
template <class T>
OPDOCK_DEVICE float tanh(T x) {
  return tanhf(x);
}
// The error function to 2 ulp.
template <class T>
OPDOCK_DEVICE float erf(T x) {
  return erff(x);
}
template <class T>
OPDOCK_DEVICE float rsqrt(T x) {
  return rsqrtf(x);
}
// The larger; the other one if one is NaN.
template <class T, class U>
OPDOCK_DEVICE float max(T a, U b) {
  return fmaxf(a, b);
}
// The larger; NaN if one is NaN.
OPDOCK_DEVICE float max_or_nan(float a, float b) {
#if !OPDOCK_HIP && __CUDA_ARCH__ >= 800
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
  return value;
#else
  return a < b || b != b ? b : a;
#endif
}
template <class T, class U>
OPDOCK_DEVICE float min(T a, U b) {
  return fminf(a, b);
}
template <class T>
OPDOCK_DEVICE float abs(T x) {
  return fabsf(x);
}
template <class T, class U, class V>
OPDOCK_DEVICE float fma(T a, U b, V c) {
  return fmaf(a, b, c);
}
OPDOCK_DEVICE float infinity() {
  return bits_float(0x7f800000u);
}
// Returns x, but hides its value from the compiler: in a loop, what is computed from it is computed
// each time, and takes no registers in between.
OPDOCK_DEVICE float opaque_value(float x) {
#if OPDOCK_HIP
  asm volatile("" : "+v"(x));
#else
  asm volatile("" : "+f"(x));
#endif
  return x;
}
// Returns the high half of the product.
OPDOCK_DEVICE uint64_t multiply_high(uint64_t a, uint64_t b) {
  return __umul64hi(a, b);
}
OPDOCK_DEVICE uint32_t multiply_high(uint32_t a, uint32_t b) {
  return __umulhi(a, b);
}

// Ends the kernel, and with it the stream, with an error, for states that must not occur.
OPDOCK_DEVICE void trap() {
#if OPDOCK_HIP
  __builtin_trap();
#else
  __trap();
#endif
}

// 16 bytes moved by one instruction.
struct alignas(16) Bytes16 {
  uint32_t word[4];
};
#if OPDOCK_HIP
typedef uint32_t Words4 __attribute__((ext_vector_type(4)));
OPDOCK_DEVICE Bytes16 load16(const void* from) {
  const Words4 value = *static_cast<const Words4*>(from);
  return {{value.x, value.y, value.z, value.w}};
}
OPDOCK_DEVICE void store16(void* to, const Bytes16& value) {
  *static_cast<Words4*>(to) = {value.word[0], value.word[1], value.word[2], value.word[3]};
}
OPDOCK_DEVICE void store16_if(bool wanted, void* to, const Bytes16& value) {
  if (wanted) store16(to, value);
}
#else
OPDOCK_DEVICE Bytes16 load16(const void* from) {
  const uint4 value = *static_cast<const uint4*>(from);
  return {{value.x, value.y, value.z, value.w}};
}
// Written in assembly, because an assignment of uint4 may be compiled to four stores of 4 bytes. If
// the compiler knows the kind of memory, it removes the branch.
OPDOCK_DEVICE void store16(void* to, const Bytes16& value) {
  if (__isGlobal(to)) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
                 : "memory");
  } else {
    asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.word[0]),
                 "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
                 : "memory");
  }
}
// Stores to global memory if `wanted`, without a branch: the compiler would move the computation of
// the value into it too.
OPDOCK_DEVICE void store16_if(bool wanted, void* to, const Bytes16& value) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.b32 wanted, %5, 0;\n"
      "@wanted st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
      "}"
      :
      : "l"(__cvta_generic_to_global(to)), "r"(value.word[0]), "r"(value.word[1]),
        "r"(value.word[2]), "r"(value.word[3]), "r"(static_cast<int>(wanted))
      : "memory");
}
#endif

}  // namespace opdock

#endif
