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

// Sixteen bytes that each warp of a cluster's blocks has for all these blocks, in one exchange
// after the other: no barrier of the block or of the cluster is needed between them. Blocks are of
// one dimension, of equally many whole warps, and take part in equally many exchanges. One thread
// of each block opens what its copies of this share, then cluster_opening() and cluster_opened()
// come as for ClusterGather. MostWarps: of a block.
//
// Two places are used in turn, which is enough: who stores for exchange i + 2 has what all warps
// gave for exchange i + 1, and each warp had read what there was for exchange i before it gave
// that. Then too, each block's barrier is past the phase of exchange i. Bytes may arrive before the
// block expects them: its one arrival ends the phase, and is still missing.
template <int MostWarps>
class ClusterRelay {
 public:
  // memory: cluster_relay_bytes() of the cluster's blocks and MostWarps, of shared memory, aligned
  // to 16, at the same place in each block.
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

  // All lanes of each warp, with the warp's value.
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

  // All lanes of each warp, once after each give(): waits until all are there. What warp w of block
  // b gave is at b * MostWarps + w, until this warp's next give().
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
  // The one arrival of a phase, which with it lasts until the bytes of all warps are there.
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
