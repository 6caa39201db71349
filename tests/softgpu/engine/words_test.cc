// Tests the vocabulary's functions other than loads, barriers and shuffles: their results and their
// faults.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "test_support.h"

namespace softgpu {
namespace {

TEST(Words, VotesAndShufflesForBothWidths) {
  const std::string text =
      "OPDOCK_KERNEL(128) votes(opdock::uint64_t* ballot, int* any, int* all) {\n"
      "  const int i = thread_index();\n"
      "  ballot[i] = vote_ballot(i % 3 == 0);\n"
      "  any[i] = vote_any(i == 70) + 2 * vote_any(i < 0);\n"
      "  all[i] = vote_all(i != 70) + 2 * vote_all(i >= 0);\n"
      "}\n"
      "OPDOCK_KERNEL(128) moves(uint32_t* up, int* down, float* to, int* x) {\n"
      "  const int i = thread_index();\n"
      "  up[i] = shuffle_up(static_cast<uint32_t>(i), 3);\n"
      "  down[i] = shuffle_down(-i, 5);\n"
      "  to[i] = shuffle_up(i + 0.5f, 1) + shuffle_down(i + 0.25f, 1);\n"
      "  x[i] = shuffle(-i, 7) + shuffle_xor(-i, 1) + static_cast<int>(shuffle(1000u * i, 2));\n"
      "}\n";
  for (int width : {32, 64}) {
    const std::vector<Kernel> kernels =
        make_kernels("#include \"opdock/device.cuh\"\nusing namespace opdock;\n" + text,
                     {"votes", "moves"}, static_cast<uint32_t>(width));
    ASSERT_EQ(kernels.size(), 2u);
    const DeviceArray<uint64_t> ballot(128);
    const DeviceArray<int> any(128), all(128), down(128), x(128);
    const DeviceArray<uint32_t> up(128);
    const DeviceArray<float> to(128);
    EXPECT_EQ(finding_of(launch_of(kernels[0], 1, 128, ballot.data(), any.data(), all.data())), "");
    EXPECT_EQ(
        finding_of(launch_of(kernels[1], 1, 128, up.data(), down.data(), to.data(), x.data())), "");
    for (int i = 0; i < 128; ++i) {
      const int lane = i % width, first = i - lane;
      uint64_t bits = 0;
      for (int k = 0; k < width; ++k) bits |= static_cast<uint64_t>((first + k) % 3 == 0) << k;
      const bool has70 = first <= 70 && 70 < first + width;
      const int higher1 = lane + 1 < width ? i + 1 : i, lower1 = lane >= 1 ? i - 1 : i;
      const size_t at = static_cast<size_t>(i);
      EXPECT_EQ(ballot.get()[at], bits);
      EXPECT_EQ(any.get()[at], has70 ? 1 : 0);
      EXPECT_EQ(all.get()[at], has70 ? 2 : 3);
      EXPECT_EQ(up.get()[at], static_cast<uint32_t>(lane >= 3 ? i - 3 : i));
      EXPECT_EQ(down.get()[at], lane + 5 < width ? -i - 5 : -i);
      EXPECT_EQ(to.get()[at], static_cast<float>(lower1) + static_cast<float>(higher1) + 0.75f);
      EXPECT_EQ(x.get()[at], -(first + 7) - (i ^ 1) + 1000 * (first + 2));
    }
  }
}

TEST(Words, AtomicsOfManyBlocks) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) sums(float* f, int* i, uint32_t* u, opdock::uint64_t* l, int* extremes) "
      "{\n"
      "  const int at = static_cast<int>(block_index()) * 64 + thread_index();\n"
      "  OPDOCK_SHARED(int, mine, 1);\n"
      "  if (thread_index() == 0) mine[0] = 0;\n"
      "  block_barrier();\n"
      "  atomic_add(mine, 1);\n"
      "  block_barrier();\n"
      "  atomic_add(f, 0.5f);\n"
      "  atomic_add(i, -at);\n"
      "  atomic_add(u, static_cast<uint32_t>(mine[0]));\n"
      "  atomic_add(l, static_cast<opdock::uint64_t>(at) << 32);\n"
      "  atomic_max(extremes, at - 100);\n"
      "  atomic_min(extremes + 1, at - 100);\n"
      "}\n",
      "sums");
  for (unsigned workers : {1u, 2u}) {
    configure({.seed = workers, .workers = workers, .counters = false, .steps = kSteps});
    const DeviceArray<float> f(std::vector<float>(1, 1.0f));
    const DeviceArray<int> i(std::vector<int>(1, 5)), extremes(std::vector<int>{-1000, 1000});
    const DeviceArray<uint32_t> u(std::vector<uint32_t>(1, 0));
    const DeviceArray<uint64_t> l(std::vector<uint64_t>(1, 9));
    EXPECT_EQ(finding_of(launch_of(kernel, 100, 64, f.data(), i.data(), u.data(), l.data(),
                                   extremes.data())),
              "");
    const int count = 6400;
    EXPECT_EQ(f.get()[0], 1.0f + 0.5f * count);
    EXPECT_EQ(i.get()[0], 5 - count * (count - 1) / 2);
    EXPECT_EQ(u.get()[0], 64u * count);
    EXPECT_EQ(l.get()[0], 9 + (static_cast<uint64_t>(count) * (count - 1) / 2 << 32));
    EXPECT_EQ(extremes.get(), (std::vector<int>{count - 101, -100}));
  }
  configure({});
}

TEST(Words, ExchangeAndCompareAndSwapMakeALock) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) locked(uint32_t* lock, int* held, opdock::uint64_t* seen) {\n"
      "  for (bool done = false; !done;) {\n"
      "    if (atomic_compare_and_swap(lock, 0u, 7u) != 0u) continue;\n"
      "    atomic_add(held, 1);\n"
      "    if (atomic_exchange(lock, 0u) == 7u) done = true;\n"
      "  }\n"
      "  atomic_exchange(seen, atomic_compare_and_swap(seen, opdock::uint64_t(1) << 40,\n"
      "                                                opdock::uint64_t(2)));\n"
      "}\n",
      "locked");
  const DeviceArray<uint32_t> lock(std::vector<uint32_t>(1, 0));
  const DeviceArray<int> held(std::vector<int>(1, 0));
  const DeviceArray<uint64_t> seen(std::vector<uint64_t>(1, uint64_t{1} << 40));
  EXPECT_EQ(finding_of(launch_of(kernel, 4, 64, lock.data(), held.data(), seen.data())), "");
  EXPECT_EQ(held.get()[0], 256);
}

TEST(Words, AnAtomicAndAPlainAccessRace) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) mixed(int* x) {\n"
      "  if (thread_index() == 3) x[0] = 1;\n"
      "  else atomic_max(x, 0);\n"
      "}\n",
      "mixed");
  // The accesses change no value, but they are a race anyway.
  const DeviceArray<int> x(std::vector<int>(1, 1));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    expect_finding(finding_of(launch_of(kernel, 1, 64, x.data())), {"race: "});
  }
  configure({});
  const DeviceArray<int> y(2);
  expect_finding(finding_of(launch_of(kernel, 1, 2, y.data())),
                 {"atomic operation on 4 bytes of uninitialised memory"});
  const DeviceArray<int> z(std::vector<int>(2, 0));
  expect_finding(finding_of(launch_of(
                     kernel, 1, 2, reinterpret_cast<int*>(reinterpret_cast<char*>(z.data()) + 2))),
                 {"misaligned atomic operation on 4 bytes"});
  expect_finding(finding_of(launch_of(kernel, 1, 2, z.data() + 2)), {"out-of-bounds"});
}

TEST(Words, IndicesOfThreeDimensions) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) where(int* y) {\n"
      "  const int64_t block =\n"
      "      block_index() + grid_blocks() * (block_index_y() + grid_blocks_y() * "
      "block_index_z());\n"
      "  const int thread = thread_index() + block_threads() * (thread_index_y() +\n"
      "                     block_threads_y() * thread_index_z());\n"
      "  y[block * 24 + thread] = static_cast<int>(grid_blocks_z() * 10 + block_threads_z());\n"
      "}\n",
      "where");
  const DeviceArray<int> y(24 * 30);
  Launch launch = launch_of(kernel, 2, 2, y.data());
  launch.grid[1] = 3;
  launch.grid[2] = 5;
  launch.block[1] = 3;
  launch.block[2] = 4;
  EXPECT_EQ(finding_of(launch), "");
  EXPECT_EQ(y.get(), std::vector<int>(24 * 30, 54));
}

TEST(Words, Arithmetic) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(1) numbers(float* f, opdock::uint64_t* n) {\n"
      "  const float in[] = {0.5f, -3.0f, 1e38f, infinity(), -infinity(), 0.0f};\n"
      "  for (int i = 0; i < 6; ++i) f[i] = opdock::rcp(in[i]);\n"
      "  f[6] = opdock::erf(0.5f);\n"
      "  f[7] = opdock::tanh(-0.5f);\n"
      "  n[0] = multiply_high(~opdock::uint64_t{0}, ~opdock::uint64_t{0});\n"
      "  n[1] = multiply_high(opdock::uint64_t{1} << 40, opdock::uint64_t{3} << 30);\n"
      "}\n",
      "numbers");
  const DeviceArray<float> f(8);
  const DeviceArray<uint64_t> n(2);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 1, f.data(), n.data())), "");
  const float inverse[] = {2.0f, -1.0f / 3.0f, 0.0f, 0.0f, -0.0f, HUGE_VALF};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(f.get()[i], inverse[i]) << i;
  EXPECT_NEAR(f.get()[6], 0.5204998778, 1e-7);
  EXPECT_NEAR(f.get()[7], -0.4621171573, 1e-7);
  EXPECT_EQ(n.get()[0], ~uint64_t{1});
  EXPECT_EQ(n.get()[1], uint64_t{192});
}

TEST(Words, Trap) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) check(const int* x) {\n"
      "  if (x[thread_index()] < 0)\n"
      "    opdock::trap();\n"
      "}\n",
      "check");
  std::vector<int> values(64, 1);
  const DeviceArray<int> x(values);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 64, x.data())), "");
  values[9] = -1;
  x.set(values);
  expect_finding(finding_of(launch_of(kernel, 1, 64, x.data())),
                 {"the kernel stops itself: trap()", "test.cu:5", "thread (9, 0, 0)"});
}

}  // namespace
}  // namespace softgpu
