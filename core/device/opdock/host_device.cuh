// What host code and device code share says OPDOCK_HOST_DEVICE. It compiles as plain C++17 too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__CUDACC__) || defined(__HIP__) || defined(__HIPCC_RTC__)
#define OPDOCK_HOST_DEVICE __host__ __device__ __forceinline__
#else
// Always inlined: of a function that several instruction set levels of the host's code use, the
// linker would keep one.
#define OPDOCK_HOST_DEVICE inline __attribute__((always_inline))
#endif
// Keeps the loop that follows as it is.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define OPDOCK_NO_UNROLL _Pragma("GCC unroll 1")
#else
#define OPDOCK_NO_UNROLL _Pragma("unroll 1")
#endif

namespace opdock {

// Of a launch that may begin early (launch_turn() in launch.cuh): blocks in its first dimension, at
// most. In larger grids kernels do not wait.
inline constexpr int kMostEarlyBlocks = 2048;
// Of a cluster: blocks that every GPU with clusters can run together.
inline constexpr int kMostCluster = 8;
// Shared memory of a ClusterRelay (cluster_gather.cuh) between so many blocks of at most so many
// warps.
OPDOCK_HOST_DEVICE constexpr int cluster_relay_bytes(int blocks, int warps) {
  return 32 + 2 * 16 * blocks * warps;
}

}  // namespace opdock
namespace opdock::detail {

// The high half of the product.
OPDOCK_HOST_DEVICE constexpr unsigned int high_product(unsigned int a, unsigned int b) {
#if defined(__CUDA_ARCH__)
  // One instruction gives both halves; of 64 bits it becomes more.
  if (!__builtin_is_constant_evaluated()) return __umulhi(a, b);
#endif
  return static_cast<unsigned int>(static_cast<unsigned long long>(a) * b >> 32);
}

}  // namespace opdock::detail
