// Macros, numbers and functions that host code and device code share. OPDOCK_HOST_DEVICE marks
// functions for both. This file compiles as plain C++17 too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__CUDACC__) || defined(__HIP__) || defined(__HIPCC_RTC__)
#define OPDOCK_HOST_DEVICE __host__ __device__ __forceinline__
#else
// Always inlined: if several instruction set levels of the host's code used one function, the
// linker would keep only one of its copies.
#define OPDOCK_HOST_DEVICE inline __attribute__((always_inline))
#endif
// Prevents unrolling of the loop that follows.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define OPDOCK_NO_UNROLL _Pragma("GCC unroll 1")
#else
#define OPDOCK_NO_UNROLL _Pragma("unroll 1")
#endif

namespace opdock {

// The most blocks, in the first dimension, of a launch that may begin early (pdl_wait_and_trigger()
// in launch.cuh). In larger grids kernels do not wait.
inline constexpr int kMaxEarlyBlocks = 2048;
// The most blocks of a cluster, which every GPU with clusters can run together.
inline constexpr int kMaxCluster = 8;
// Returns the bytes of shared memory of a ClusterRelay (cluster_gather.cuh) between `blocks` blocks
// of at most `warps` warps.
OPDOCK_HOST_DEVICE constexpr int cluster_relay_bytes(int blocks, int warps) {
  return 32 + 2 * 16 * blocks * warps;
}

}  // namespace opdock
namespace opdock::detail {

// Returns the high half of the product.
OPDOCK_HOST_DEVICE constexpr unsigned int high_product(unsigned int a, unsigned int b) {
#if defined(__CUDA_ARCH__)
  // This is one instruction, which gives both halves; a product of 64 bits would be more.
  if (!__builtin_is_constant_evaluated()) return __umulhi(a, b);
#endif
  return static_cast<unsigned int>(static_cast<unsigned long long>(a) * b >> 32);
}

}  // namespace opdock::detail
