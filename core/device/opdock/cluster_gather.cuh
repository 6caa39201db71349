// Exchanges of values between the blocks of a cluster, without cluster_barrier(), which would wait
// for all their stores to global memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/cluster.cuh"
#include "opdock/host_device.cuh"

namespace opdock {

// Gathers eight bytes from each block of a cluster in all of its blocks. It lies in shared memory
// and is used once. Thread 0 of each block opens all gathers by cluster_open(); then every thread
// calls cluster_opening(), and cluster_opened() once, before the first gather() and before it ends.
template <typename T>
struct ClusterGather {
  static_assert(sizeof(T) == 8, "one store of two words");
  uint64_t arrived;  // an mbarrier that counts the missing bytes
  T from[kMaxCluster];

  // Called by all threads of each block, with the block's value. Afterwards from[i] is the value of
  // block i. Nothing is written into a block after its gather(), so that it may end.
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

// Makes `count` gathers ready, which lie at the same place in the shared memory of each block.
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
// Called by all threads of each block: the first and the second half of the wait until all blocks
// have opened their gathers. There may be other work between the two.
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

// Passes sixteen bytes from each warp of a cluster's blocks to all of these blocks, in a series of
// exchanges, between which no barrier of the block or of the cluster is needed. Blocks have one
// dimension and the same number of whole warps, and take part in the same number of exchanges. One
// thread of each block calls open(); then cluster_opening() and cluster_opened() follow, as for
// ClusterGather. MostWarps: the most warps of a block.
//
// Two buffers alternate, which is enough: a warp that stores for exchange i + 2 has the values of
// all warps for exchange i + 1, and each warp had read the values of exchange i before it gave its
// own for i + 1. Each block's barrier is then past the phase of exchange i too. Bytes may arrive
// before the block expects them: the phase does not end then, because it also needs the block's one
// arrival, which is still missing.
template <int MostWarps>
class ClusterRelay {
 public:
  // memory: shared memory of cluster_relay_bytes(), for the cluster's blocks and MostWarps; aligned
  // to 16 bytes, at the same place in each block.
  OPDOCK_DEVICE explicit ClusterRelay(void* memory)
      : arrived_(static_cast<uint64_t*>(memory)), from_(static_cast<Bytes16*>(memory) + 2) {}

  OPDOCK_DEVICE void open() const {
#if OPDOCK_HAS_CLUSTERS
    for (int place = 0; place < 2; ++place) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                   :
                   : "r"(shared_address(arrived_ + place))
                   : "memory");
      expect(place);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#endif
  }

  // Called by all lanes of each warp, with the warp's value.
  OPDOCK_DEVICE void give(const Bytes16& value) const {
    const int lane = thread_index() % warp_width(), warp = thread_index() / warp_width();
    if (lane >= cluster_blocks()) return;
    Bytes16* const to = place_of(turn_ & 1) + cluster_rank() * MostWarps + warp;
#if OPDOCK_HAS_CLUSTERS
    asm volatile(
        "{\n"
        ".reg .b32 to, arrived;\n"
        "mapa.shared::cluster.u32 to, %0, %6;\n"
        "mapa.shared::cluster.u32 arrived, %1, %6;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [to], {%2, %3, %4, %5}, "
        "[arrived];\n"
        "}"
        :
        : "r"(shared_address(to)), "r"(shared_address(arrived_ + (turn_ & 1))), "r"(value.word[0]),
          "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3]), "r"(lane)
        : "memory");
#else
    *cluster_shared(to, lane) = value;
#endif
  }

  // Called by all lanes of each warp, once after each give(). Waits until the values of all warps
  // are there. The value of warp w of block b is at index b * MostWarps + w, until this warp's next
  // give().
  OPDOCK_DEVICE const Bytes16* take() {
    const int place = turn_ & 1;
#if defined(OPDOCK_SOFT)
    softgpu_cluster_barrier();
#elif OPDOCK_HAS_CLUSTERS
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}"
        :
        : "r"(shared_address(arrived_ + place)), "r"(turn_ >> 1 & 1)
        : "memory");
    if (thread_index() == 0) expect(place);
#else
    block_barrier();
#endif
    ++turn_;
    return place_of(place);
  }

 private:
  OPDOCK_DEVICE Bytes16* place_of(int place) const {
    return from_ + place * cluster_blocks() * MostWarps;
  }
#if OPDOCK_HAS_CLUSTERS
  static OPDOCK_DEVICE uint32_t shared_address(const void* at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }
  // Makes the one arrival of a phase, and lets the phase last until the bytes of all warps are
  // there.
  OPDOCK_DEVICE void expect(int place) const {
    const int warps = cluster_blocks() * block_threads() / warp_width();
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(arrived_ + place)),
                   "r"(warps * static_cast<int>(sizeof(Bytes16)))
                 : "memory");
  }
#endif

  uint64_t* arrived_;  // two mbarriers
  Bytes16* from_;
  int turn_ = 0;
};

}  // namespace opdock
