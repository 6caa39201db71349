// Clusters: blocks that run at the same time and can access each other's shared memory. Before
// sm_90, on AMD GPUs, and in a launch that asks for none, a cluster is one block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

#if !defined(OPDOCK_SOFT) && !OPDOCK_HIP && __CUDA_ARCH__ >= 900
#define OPDOCK_HAS_CLUSTERS 1
#else
#define OPDOCK_HAS_CLUSTERS 0
#endif

namespace opdock {

// The number of blocks in this block's cluster, and this block's index among them.
OPDOCK_DEVICE int cluster_blocks() {
#if defined(OPDOCK_SOFT)
  return static_cast<int>(softgpu::this_lane()->cluster_size);
#elif OPDOCK_HAS_CLUSTERS
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return static_cast<int>(blocks);
#else
  return 1;
#endif
}
OPDOCK_DEVICE int cluster_rank() {
#if defined(OPDOCK_SOFT)
  return static_cast<int>(softgpu::this_lane()->cluster_rank);
#elif OPDOCK_HAS_CLUSTERS
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#else
  return 0;
#endif
}

// Waits until all threads of the cluster are here; then each sees what the others have written.
// Call it before the first access to another block's shared memory, and after the last one: a block
// that has ended has no shared memory. It also waits for each thread's stores to global memory: to
// exchange numbers of a row while other numbers are being stored, ClusterGather is much faster.
OPDOCK_DEVICE void cluster_barrier() {
#if defined(OPDOCK_SOFT)
  softgpu_cluster_barrier();
#elif OPDOCK_HAS_CLUSTERS
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;"
      :
      :
      : "memory");
#else
  block_barrier();
#endif
}

// Returns the address in the shared memory of block `rank` of the cluster that corresponds to
// `mine` in this block's.
template <typename T>
OPDOCK_DEVICE T* cluster_shared(T* mine, int rank) {
#if defined(OPDOCK_SOFT)
  return static_cast<T*>(softgpu_cluster_shared(mine, static_cast<uint32_t>(rank)));
#elif OPDOCK_HAS_CLUSTERS
  T* theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return theirs;
#else
  (void)rank;
  return mine;
#endif
}

}  // namespace opdock
