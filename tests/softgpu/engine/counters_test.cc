// Tests the counters of kernels whose cost can be counted by hand.
// SPDX-License-Identifier: Apache-2.0
#include "test_support.h"

namespace softgpu {
namespace {

// Returns what one launch adds to its kernel's counters.
Counters cost_of(const Launch& launch) {
  const auto now = [&] {
    for (const Counters& known : counters())
      if (known.kernel == launch.kernel->expression) return known;
    return Counters();
  };
  const Counters before = now();
  configure({.seed = 0, .workers = 2, .counters = true});
  EXPECT_EQ(finding_of(launch), "");
  configure({});
  Counters cost = now();
  EXPECT_EQ(cost.launches, before.launches + 1);
  for (const auto& [name, value] : kCounters) cost.*value -= before.*value;
  return cost;
}

constexpr char kStrided[] =
    "OPDOCK_KERNEL(128) strided(const float* x, float* y, int stride) {\n"
    "  const int64_t i = block_index() * block_threads() + thread_index();\n"
    "  y[i] = x[i * stride];\n"
    "}\n";

TEST(Counters, SectorsOfCoalescedStridedAndBroadcastLoads) {
  const Kernel kernel = make_kernel(kStrided, "strided");
  const DeviceArray<float> x(std::vector<float>(256 * 32, 1.0f)), y(256);
  const struct {
    int stride;
    uint64_t sectors;  // of the loads of 8 warps
  } cases[] = {{1, 8 * 4}, {2, 8 * 8}, {8, 8 * 32}, {32, 8 * 32}, {0, 8 * 1}};
  for (const auto& each : cases) {
    const Counters cost = cost_of(launch_of(kernel, 2, 128, x.data(), y.data(), each.stride));
    EXPECT_EQ(cost.blocks, 2u);
    EXPECT_EQ(cost.threads, 256u);
    EXPECT_EQ(cost.global_load_requests, 8u);
    EXPECT_EQ(cost.global_load_sectors, each.sectors) << each.stride;
    EXPECT_EQ(cost.global_store_requests, 8u);
    EXPECT_EQ(cost.global_store_sectors, 32u);
    EXPECT_EQ(cost.shared_load_requests + cost.shared_store_requests + cost.barriers, 0u);
  }
}

TEST(Counters, AMisplacedRowTouchesASectorMore) {
  const Kernel kernel = make_kernel(kStrided, "strided");
  const DeviceArray<float> x(std::vector<float>(129, 1.0f)), y(128);
  EXPECT_EQ(cost_of(launch_of(kernel, 1, 128, x.data() + 1, y.data(), 1)).global_load_sectors, 20u);
}

TEST(Counters, WidthOfTheWarpMakesTheRequest) {
  const Kernel kernel = make_kernel(kStrided, "strided", 64);
  const DeviceArray<float> x(std::vector<float>(256, 1.0f)), y(256);
  const Counters cost = cost_of(launch_of(kernel, 2, 128, x.data(), y.data(), 1));
  EXPECT_EQ(cost.global_load_requests, 4u);
  EXPECT_EQ(cost.global_load_sectors, 32u);
}

TEST(Counters, WideLoadsAndLoopsAndLanesThatSitOut) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) loop(const float* x, float* y, int n) {\n"
      "  float sum = 0;\n"
      "  for (int i = 0; i < n; ++i)\n"
      "    if (thread_index() % 2 == 0 || i == 0)\n"
      "      sum += load_vector(x + 4 * thread_index()).at[i];\n"
      "  y[thread_index()] = sum;\n"
      "}\n",
      "loop");
  const DeviceArray<float> x(std::vector<float>(128, 1.0f)), y(32);
  const Counters cost = cost_of(launch_of(kernel, 1, 32, x.data(), y.data(), 3));
  EXPECT_EQ(cost.global_load_requests, 3u);
  // Half of the lanes still touch one of each two 16-byte pieces, and so every sector.
  EXPECT_EQ(cost.global_load_sectors, 3u * 16u);
  EXPECT_EQ(cost.global_store_requests, 1u);
}

TEST(Counters, BankConflicts) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) banks(float* y, int stride) {\n"
      "  OPDOCK_SHARED(float, a, 1024);\n"
      "  a[(thread_index() * stride) % 1024] = 1;\n"
      "  block_barrier();\n"
      "  y[thread_index()] = a[(thread_index() * stride) % 1024];\n"
      "}\n",
      "banks");
  const DeviceArray<float> y(32);
  const struct {
    int stride;
    uint64_t conflicts;  // of the load; the store has as many
  } cases[] = {{1, 0}, {2, 1}, {4, 3}, {32, 31}, {33, 0}, {0, 0}};
  for (const auto& each : cases) {
    const Counters cost = cost_of(launch_of(kernel, 1, 32, y.data(), each.stride));
    EXPECT_EQ(cost.shared_load_requests, 1u);
    EXPECT_EQ(cost.shared_store_requests, 1u);
    EXPECT_EQ(cost.shared_bank_conflicts, 2 * each.conflicts) << each.stride;
    EXPECT_EQ(cost.barriers, 1u);
  }
}

TEST(Counters, WideSharedAccessesGoInParts) {
  const Kernel kernel = make_kernel(
      "struct alignas(16) Four { float at[4]; };\n"
      "OPDOCK_KERNEL(32) wide(float* y, int stride) {\n"
      "  OPDOCK_SHARED(Four, a, 64);\n"
      "  store_vector(a[thread_index() * stride].at, Vector<float>{});\n"
      "  y[thread_index()] = a[thread_index() * stride].at[0];\n"
      "}\n",
      "wide");
  const DeviceArray<float> y(32);
  // Stores: 8 lanes at a time fill the banks. Loads of every fourth word: 4 lanes per bank.
  EXPECT_EQ(cost_of(launch_of(kernel, 1, 32, y.data(), 1)).shared_bank_conflicts, 0u + 3u);
  // With twice the stride, stores have 2 lanes per bank in each part, and loads 8 lanes per bank.
  EXPECT_EQ(cost_of(launch_of(kernel, 1, 32, y.data(), 2)).shared_bank_conflicts, 4u * 1u + 7u);
}

TEST(Counters, BarriersShufflesAndAtomics) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(128) sums(float* y) {\n"
      "  OPDOCK_SHARED(float, scratch, 4);\n"
      "  const float sum = block_reduce<Sum>(1.0f, scratch);\n"
      "  warp_barrier();\n"
      "  if (vote_all(true)) atomic_add(y, sum);\n"
      "}\n",
      "sums");
  const DeviceArray<float> y(std::vector<float>(1, 0.0f));
  const Counters cost = cost_of(launch_of(kernel, 3, 128, y.data()));
  EXPECT_EQ(cost.barriers, 3u * 2u);
  EXPECT_EQ(cost.shuffles, 3u * 4u * (5u + 5u + 1u));
  EXPECT_EQ(cost.atomics, 3u * 4u);
  EXPECT_EQ(cost.shared_store_requests, 3u * 4u);
  EXPECT_EQ(cost.shared_load_requests, 3u * 4u);
  EXPECT_EQ(cost.shared_bank_conflicts, 0u);
  EXPECT_EQ(y.get()[0], 128.0f * 128 * 3);
}

TEST(Counters, AnAsynchronousCopyCountsOnce) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) stage(const float* x) {\n"
      "  copy_async16(dynamic_shared<float>() + 4 * thread_index(), x + 4 * thread_index());\n"
      "  copy_async_commit();\n"
      "  copy_async_wait<0>();\n"
      "}\n",
      "stage");
  const DeviceArray<float> x(std::vector<float>(128, 1.0f));
  Launch launch = launch_of(kernel, 1, 32, x.data());
  launch.shared_bytes = 512;
  const Counters cost = cost_of(launch);
  EXPECT_EQ(cost.global_load_sectors, 16u);
  EXPECT_EQ(cost.shared_store_requests, 1u);
}

}  // namespace
}  // namespace softgpu
