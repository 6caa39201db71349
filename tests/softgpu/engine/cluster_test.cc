// Tests clusters and asynchronous copies: their results and their faults.
// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "test_support.h"

namespace softgpu {
namespace {

std::string cluster_text(const std::string& between, const std::string& last) {
  return "OPDOCK_KERNEL(64) ring(int* y) {\n"
         "  OPDOCK_SHARED(int, other, 3);\n"
         "  OPDOCK_SHARED(int, mine, 64);\n"
         "  mine[thread_index()] = 100 * cluster_rank() + thread_index();\n"
         "  " +
         between +
         "\n"
         "  const int next = (cluster_rank() + 1) % cluster_blocks();\n"
         "  y[64 * block_index() + thread_index()] = cluster_shared(mine + 1, next)[thread_index() "
         "- 1];\n"
         "  " +
         last +
         "\n"
         "}\n";
}

Launch ring_launch(const Kernel& kernel, const DeviceArray<int>& y) {
  Launch launch = launch_of(kernel, 8, 64, y.data());
  launch.cluster[0] = 4;
  return launch;
}

TEST(Cluster, BlocksReadEachOthersSharedMemory) {
  const Kernel kernel =
      make_kernel(cluster_text("cluster_barrier();", "cluster_barrier();"), "ring");
  const DeviceArray<int> y(512);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    configure({.seed = seed, .workers = 2, .counters = false, .steps = kSteps});
    EXPECT_EQ(finding_of(ring_launch(kernel, y)), "");
    for (int i = 0; i < 512; ++i)
      EXPECT_EQ(y.get()[static_cast<size_t>(i)], 100 * ((i / 64 + 1) % 4) + i % 64);
  }
  configure({});
  Launch alone = launch_of(kernel, 8, 64, y.data());
  EXPECT_EQ(finding_of(alone), "");
  EXPECT_EQ(y.get()[511], 63);
  alone.cluster[0] = 3;
  expect_finding(finding_of(alone), {"not a multiple of its clusters"});
}

TEST(Cluster, WithoutItsBarrierItIsARace) {
  const Kernel kernel = make_kernel(
      cluster_text("mine[thread_index()] += 0; block_barrier();", "cluster_barrier();"), "ring");
  const DeviceArray<int> y(512);
  int races = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    const std::string found = finding_of(ring_launch(kernel, y));
    EXPECT_NE(found, "");
    races += found.find("race: read of 4 bytes") != found.npos;
  }
  configure({});
  EXPECT_GT(races, 0);
}

TEST(Cluster, ABlockThatHasEndedHasNoSharedMemory) {
  const Kernel kernel = make_kernel(cluster_text("cluster_barrier();", ""), "ring");
  const DeviceArray<int> y(512);
  int found = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    found += finding_of(ring_launch(kernel, y)).find("out-of-bounds read") != std::string::npos;
  }
  configure({});
  EXPECT_GT(found, 0);
}

TEST(Cluster, OfABlockOrMemoryThatIsNotThere) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) wrong(int* y, int rank, int shared) {\n"
      "  OPDOCK_SHARED(int, mine, 64);\n"
      "  cluster_barrier();\n"
      "  *cluster_shared(shared ? mine : y, rank) = 1;\n"
      "}\n",
      "wrong");
  const DeviceArray<int> y(1);
  expect_finding(finding_of(launch_of(kernel, 1, 1, y.data(), 1, 1)),
                 {"block 1 of the cluster, which has no such block"});
  expect_finding(finding_of(launch_of(kernel, 1, 1, y.data(), 0, 0)),
                 {"an address that is not in the block's shared memory", "test.cu:6"});
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 1, y.data(), 0, 1)), "");
}

// In each exchange every warp sees what all warps of the cluster gave for that exchange, even if
// some warps are ahead.
TEST(Cluster, WarpsRelayToAllOfTheirCluster) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) tell(int* y) {\n"
      "  ClusterRelay<3> relay(dynamic_shared<Bytes16>());\n"
      "  if (thread_index() == 0) relay.open();\n"
      "  cluster_opening();\n"
      "  cluster_opened();\n"
      "  const uint32_t warp = thread_index() / warp_width(), rank = cluster_rank();\n"
      "  int wrong = 0;\n"
      "  for (uint32_t i = 0; i < 7; ++i) {\n"
      "    relay.give({{i, rank, warp, 1000 * i + 10 * rank + warp}});\n"
      "    const Bytes16* const given = relay.take();\n"
      "    for (uint32_t b = 0; b < 4; ++b) {\n"
      "      for (uint32_t w = 0; w < block_threads() / warp_width(); ++w) {\n"
      "        const Bytes16 found = load16(given + b * 3 + w);\n"
      "        wrong += found.word[0] != i || found.word[1] != b || found.word[2] != w ||\n"
      "                 found.word[3] != 1000 * i + 10 * b + w;\n"
      "      }\n"
      "    }\n"
      "  }\n"
      "  y[64 * block_index() + thread_index()] = wrong;\n"
      "}\n",
      "tell");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const DeviceArray<int> y(512);
    configure({.seed = seed, .workers = 2, .counters = false, .steps = kSteps});
    Launch launch = launch_of(kernel, 8, 64, y.data());
    launch.cluster[0] = 4;
    launch.shared_bytes = 32 + 2 * 16 * 4 * 3;
    EXPECT_EQ(finding_of(launch), "");
    for (int i = 0; i < 512; ++i) EXPECT_EQ(y.get()[static_cast<size_t>(i)], 0);
  }
  configure({});
}

// ---- asynchronous copies

std::string copy_text(const std::string& wait) {
  return "OPDOCK_KERNEL(32) stage(const float* x, float* y) {\n"
         "  float* const a = dynamic_shared<float>();\n"
         "  const int i = 4 * thread_index();\n"
         "  copy_async16(a + i, x + i);\n"
         "  copy_async_commit();\n"
         "  copy_async16(a + 128 + i, x + 128 + i);\n"
         "  copy_async_commit();\n"
         "  " +
         wait +
         "\n"
         "  y[i] = a[i + 3];\n"
         "  " +
         (wait.empty() ? "" : "copy_async_wait<0>();") +
         "\n"
         "  block_barrier();\n"
         "  y[128 + i] = a[128 + (i + 4) % 128];\n"
         "}\n";
}

TEST(CopyAsync, ArrivesWhenItIsWaitedFor) {
  std::vector<float> values(256);
  std::iota(values.begin(), values.end(), 0.0f);
  const DeviceArray<float> x(values), y(256);
  for (uint32_t width : {32u, 64u}) {  // on 64-wide warps (AMD) the copy is an ordinary one
    const Kernel kernel = make_kernel(copy_text("copy_async_wait<1>();"), "stage", width);
    Launch launch = launch_of(kernel, 1, 32, x.data(), y.data());
    launch.shared_bytes = 1024;
    EXPECT_EQ(finding_of(launch), "");
    for (int i = 0; i < 128; i += 4) {
      float got[2];
      std::memcpy(&got[0], y.data() + i, 4);
      std::memcpy(&got[1], y.data() + 128 + i, 4);
      EXPECT_EQ(got[0], static_cast<float>(i + 3));
      EXPECT_EQ(got[1], static_cast<float>(128 + (i + 4) % 128));
    }
  }
}

TEST(CopyAsync, IsNotThereBefore) {
  const DeviceArray<float> x(std::vector<float>(256, 1.0f)), y(256);
  for (const char* wait : {"", "copy_async_wait<2>();"}) {
    const Kernel kernel = make_kernel(copy_text(wait), "stage");
    Launch launch = launch_of(kernel, 1, 32, x.data(), y.data());
    launch.shared_bytes = 1024;
    expect_finding(finding_of(launch),
                   {"read of 4 bytes of uninitialised memory", "test.cu:11",
                    "copy     an asynchronous copy to there, of test.cu:6", "was not waited for"});
  }
}

TEST(CopyAsync, ItsEndsAreChecked) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) one(const char* x, char* y) {\n"
      "  char* const a = dynamic_shared<char>();\n"
      "  copy_async16(y ? y : a, x);\n"
      "}\n",
      "one");
  const DeviceArray<char> x(std::vector<char>(40, 1)), y(16);
  char* const null = nullptr;
  Launch launch = launch_of(kernel, 1, 1, x.data(), null);
  launch.shared_bytes = 16;
  EXPECT_EQ(finding_of(launch), "");
  launch.args[0] = bytes_of(x.data() + 8);
  expect_finding(finding_of(launch), {"misaligned read of 16 bytes", "test.cu:5"});
  launch.args[0] = bytes_of(x.data() + 32);
  expect_finding(finding_of(launch), {"out-of-bounds read of 16 bytes"});
  launch.args[0] = bytes_of(x.data());
  launch.args[1] = bytes_of(y.data());
  expect_finding(finding_of(launch), {"an address that is not in the block's shared memory"});
}

}  // namespace
}  // namespace softgpu
