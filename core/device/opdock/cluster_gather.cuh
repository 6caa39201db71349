// What the blocks of a cluster have for each other, without the barrier that waits for all that
// they have stored to global memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/cluster.cuh"
#include "opdock/host_device.cuh"

namespace opdock {

// Eight bytes that each block of a cluster has for all of them: shared memory, used once. Thread 0
// of each block opens all that there are by cluster_open(); then every thread comes to
// cluster_opening(), and to cluster_opened() once before the first gather() and before it ends.
template <typename T>
struct ClusterGather {
  static_assert(sizeof(T) == 8, "one store of two words");
  uint64_t arrived;  // an mbarrier: how many bytes are missing
  T from[kMostCluster];

  // All threads of each block, with the block's value. Then all of `from` is there. Nobody writes
  // into a block afterwards, so that it may end.
  OPDOCK_DEVICE void gather(const T& value) {
    const int blocks = cluster_blocks(), to = thread_index();
#if defined(OPDOCK_SOFT)
    if (to < blocks) *cluster_shared(&from[cluster_rank()], to) = value;
    softgpu_cluster_barrier();
#elif OPDOCK_HAS_CLUSTERS
    const uint32_t here = static_cast<uint32_t>(__cvta_generic_to_shared(&arrived));
    if (to < blocks) {
      union {
        T whole;
        uint32_t word[2];
      } both;
      both.whole = value;
      const void* const slot = &from[cluster_rank()];
      asm volatile(
          "{\n"
          ".reg .b32 slot, arrived;\n"
          "mapa.shared::cluster.u32 slot, %0, %4;\n"
          "mapa.shared::cluster.u32 arrived, %1, %4;\n"
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [slot], {%2, %3}, "
          "[arrived];\n"
          "}"
          :
          : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(slot))), "r"(here),
            "r"(both.word[0]), "r"(both.word[1]), "r"(to)
          : "memory");
    }
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
        "@!done bra again;\n"
        "}"
        :
        : "r"(here)
        : "memory");
#else
    if (to < blocks) from[0] = value;
    block_barrier();
#endif
  }
};

// Makes `count` of them ready, which lie at the same place in each block.
template <typename T>
OPDOCK_DEVICE void cluster_open(ClusterGather<T>* gathers, int count) {
#if OPDOCK_HAS_CLUSTERS
  for (int i = 0; i < count; ++i) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        :
        : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(&gathers[i].arrived))),
          "r"(cluster_blocks() * static_cast<int>(sizeof(T)))
        : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#else
  (void)gathers;
  (void)count;
#endif
}
// All threads of each block: the first half of waiting until all blocks have opened theirs, behind
// which there may be work; then the second.
OPDOCK_DEVICE void cluster_opening() {
#if OPDOCK_HAS_CLUSTERS
  asm volatile("barrier.cluster.arrive.relaxed;" : : : "memory");
#endif
}
OPDOCK_DEVICE void cluster_opened() {
#if defined(OPDOCK_SOFT)
  softgpu_cluster_barrier();
#elif OPDOCK_HAS_CLUSTERS
  asm volatile("barrier.cluster.wait;" : : : "memory");
#endif
}

}  // namespace opdock
