// Tests races between threads: planted ones, and correct kernels that come close to one.
// SPDX-License-Identifier: Apache-2.0
#include "test_support.h"

namespace softgpu {
namespace {

// Expects that no order of many leads to a finding.
void expect_clean(const Launch& launch) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    ASSERT_EQ(finding_of(launch), "") << seed;
  }
  configure({});
}

// Expects a finding in each of many orders, not only in an unlucky one.
void expect_always(const Launch& launch, const std::vector<std::string>& parts) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    expect_finding(finding_of(launch), parts);
    if (testing::Test::HasFailure()) return;
  }
  configure({});
}

std::string reverse(const std::string& barrier, const std::string& memory) {
  return "OPDOCK_KERNEL(64) reverse(float* y, float* global) {\n"
         "  OPDOCK_SHARED(float, shared, 64);\n"
         "  float* const a = " +
         memory +
         "; a[thread_index()] = 0; block_barrier();\n"
         "  a[thread_index()] = static_cast<float>(thread_index());\n"
         "  " +
         barrier +
         "\n"
         "  y[thread_index()] = a[block_threads() - 1 - thread_index()];\n"
         "}\n";
}

TEST(Race, SharedReadAndWriteWithoutABarrier) {
  const DeviceArray<float> y(64), global(64);
  const Kernel kernel = make_kernel(reverse("", "shared"), "reverse");
  expect_always(launch_of(kernel, 1, 64, y.data(), global.data()),
                {"race: ", "of 4 bytes that another thread", "test.cu:", "other    thread (",
                 "shared memory of test.cu:4"});
  // Either access can come second; the finding names both lines.
  const std::string found = finding_of(launch_of(kernel, 1, 64, y.data(), global.data()));
  expect_finding(found, {"test.cu:6", "test.cu:8"});
  const Kernel right = make_kernel(reverse("block_barrier();", "shared"), "reverse");
  expect_clean(launch_of(right, 3, 64, y.data(), global.data()));
}

TEST(Race, GlobalReadAndWriteWithoutABarrier) {
  const DeviceArray<float> y(64), global(64);
  const Kernel kernel = make_kernel(reverse("", "global"), "reverse");
  expect_always(launch_of(kernel, 1, 64, y.data(), global.data()),
                {"race: ", "test.cu:6", "test.cu:8", "allocation of 256 bytes"});
  const Kernel right = make_kernel(reverse("block_barrier();", "global"), "reverse");
  expect_clean(launch_of(right, 1, 64, y.data(), global.data()));
}

TEST(Race, AWarpBarrierOrdersOneWarpOnly) {
  const DeviceArray<float> y(64), global(64);
  for (uint32_t width : {32u, 64u}) {
    const Kernel kernel = make_kernel(reverse("warp_barrier();", "shared"), "reverse", width);
    const Launch two_or_one = launch_of(kernel, 1, 64, y.data(), global.data());
    if (width == 32) expect_always(two_or_one, {"race: "});
    if (width == 64) expect_clean(two_or_one);
    expect_clean(launch_of(kernel, 1, 32, y.data(), global.data()));
  }
}

TEST(Race, AShuffleOrdersNoMemory) {
  const Kernel kernel =
      make_kernel(reverse("if (shuffle_xor(1.0f, 1) != 1.0f) return;", "shared"), "reverse");
  const DeviceArray<float> y(64), global(64);
  expect_always(launch_of(kernel, 1, 32, y.data(), global.data()), {"race: "});
}

TEST(Race, WriteAfterAReadByMany) {
  const std::string text =
      "OPDOCK_KERNEL(64) replace(float* y) {\n"
      "  OPDOCK_SHARED(float, a, 1);\n"
      "  if (thread_index() == 0) a[0] = 1;\n"
      "  block_barrier();\n"
      "  y[thread_index()] = a[0];\n"
      "  BARRIER\n"
      "  if (thread_index() == 5) a[0] = 2;\n"
      "}\n";
  const DeviceArray<float> y(64);
  const Kernel kernel = make_kernel("#define BARRIER\n" + text, "replace");
  for (uint32_t threads : {6u, 32u, 64u})
    expect_always(launch_of(kernel, 1, threads, y.data()), {"race: ", "test.cu:8", "test.cu:10"});
  const Kernel right = make_kernel("#define BARRIER block_barrier();\n" + text, "replace");
  expect_clean(launch_of(right, 1, 64, y.data()));
  // With one warp barrier after the reads, one warp is correct and two warps race.
  const Kernel half = make_kernel("#define BARRIER warp_barrier();\n" + text, "replace");
  expect_clean(launch_of(half, 1, 32, y.data()));
  expect_always(launch_of(half, 1, 64, y.data()), {"race: "});
}

TEST(Race, BytesOfOneWordAreApart) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) bytes(uint8_t* x, half* y) {\n"
      "  OPDOCK_SHARED(uint8_t, a, 64);\n"
      "  a[thread_index()] = x[thread_index()];\n"
      "  y[thread_index()] = from_float<half>(a[thread_index()]);\n"
      "  x[thread_index()] = 7;\n"
      "}\n",
      "bytes");
  const DeviceArray<uint8_t> x(std::vector<uint8_t>(64, 3));
  const DeviceArray<uint16_t> y(64);
  expect_clean(launch_of(kernel, 1, 64, x.data(), y.data()));
  EXPECT_EQ(y.get(), std::vector<uint16_t>(64, 0x4700));
}

TEST(Race, ManyBarriersAreStillToldApart) {
  // Blocks and warps count barriers in few bits. After the counter wraps around, a race is still
  // found, and a correct kernel has no finding.
  const std::string text =
      "OPDOCK_KERNEL(64) turns(int* y, int rounds, int gap) {\n"
      "  OPDOCK_SHARED(int, a, 64);\n"
      "  a[thread_index()] = 0;\n"
      "  for (int i = 0; i < rounds; ++i) {\n"
      "    BARRIER();\n"
      "    const int got = a[(thread_index() + 1) % block_threads()];\n"
      "    if (i != gap) BARRIER();\n"
      "    a[thread_index()] = got + 1;\n"
      "  }\n"
      "  y[thread_index()] = a[thread_index()];\n"
      "}\n";
  const DeviceArray<int> y(64);
  for (const char* barrier : {"block_barrier", "warp_barrier"}) {
    const uint32_t threads = barrier[0] == 'b' ? 64 : 32;
    const Kernel kernel =
        make_kernel("#define BARRIER " + std::string(barrier) + "\n" + text, "turns");
    EXPECT_EQ(finding_of(launch_of(kernel, 2, threads, y.data(), 1500, -1)), "");
    expect_finding(finding_of(launch_of(kernel, 1, threads, y.data(), 1500, 1400)), {"race: "});
  }
}

TEST(Race, TwoThreadsAfterManyBarriers) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(2) pair(int* y) {\n"
      "  OPDOCK_SHARED(int, a, 2);\n"
      "  a[thread_index()] = 0;\n"
      "  for (int i = 0; i < 1200; ++i) block_barrier();\n"
      "  a[thread_index()] = 1;\n"
      "  y[thread_index()] = a[1 - thread_index()];\n"
      "}\n",
      "pair");
  const DeviceArray<int> y(2);
  expect_always(launch_of(kernel, 1, 2, y.data()), {"race: ", "test.cu:7", "test.cu:8"});
}

TEST(Race, ABlocksBarrierAfterManyOfAWarp) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) warps(int* y) {\n"
      "  OPDOCK_SHARED(int, a, 64);\n"
      "  for (int i = 0; i < 512; ++i) warp_barrier();\n"
      "  a[thread_index()] = 1;\n"
      "  block_barrier();\n"
      "  y[thread_index()] = a[63 - thread_index()];\n"
      "}\n",
      "warps");
  const DeviceArray<int> y(64);
  expect_clean(launch_of(kernel, 1, 64, y.data()));
}

// ---- between blocks

TEST(Race, OutputWrittenTwiceWithDifferentValues) {
  const std::string text =
      "OPDOCK_KERNEL(32) twice(int* y, int same) {\n"
      "  y[thread_index()] = same ? 5 : static_cast<int>(block_index());\n"
      "}\n";
  const Kernel kernel = make_kernel(text, "twice");
  const DeviceArray<int> y(32);
  expect_clean(launch_of(kernel, 3, 32, y.data(), 1));
  for (unsigned workers : {1u, 2u}) {
    configure({.seed = 1, .workers = workers, .counters = false, .steps = kSteps});
    expect_finding(finding_of(launch_of(kernel, 200, 32, y.data(), 0)),
                   {"write of 4 bytes that another block has written with a different value",
                    "test.cu:4", "other    thread (", "byte "});
  }
  configure({});
}

TEST(Race, TwoThreadsOfABlockWriteOneElement) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) pairs(int* y, int divisor) {\n"
      "  y[thread_index() / 2] = thread_index() / divisor;\n"
      "}\n",
      "pairs");
  const DeviceArray<int> y(32);
  expect_clean(launch_of(kernel, 1, 64, y.data(), 2));
  expect_always(launch_of(kernel, 1, 64, y.data(), 1),
                {"race: write of 4 bytes that another thread writes", "test.cu:4"});
}

}  // namespace
}  // namespace softgpu
