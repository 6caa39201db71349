// SPDX-License-Identifier: Apache-2.0
#include <opdock/elementwise_op.hpp>

#include "launches.h"

namespace opdock_test::activation_plugin {
namespace {

int64_t per_vector(Type type) {
  return type == Type::kFloat32 ? 4 : 8;
}

// Tests the division by multiplication that kernels use; no other test here executes it.
TEST(ActivationLaunches, DivideByMultiplying) {
  __extension__ typedef unsigned __int128 Wide;
  const uint64_t numbers[] = {
      0, 1, 2, 255, 1000, (1ull << 32) - 1, 1ull << 32, (1ull << 39) + 7, (1ull << 63) - 1};
  const uint64_t divisors[] = {2,
                               3,
                               4,
                               5,
                               7,
                               128,
                               129,
                               1000,
                               (1ull << 31) - 1,
                               1ull << 33,
                               (1ull << 33) + 1,
                               (1ull << 62) + 1};
  for (const uint64_t divisor : divisors) {
    opdock::Elements<1> elements = {};
    opdock::detail::set_divisor(&elements, divisor);
    auto divide = [&](uint64_t n) {
      return static_cast<uint64_t>(Wide{n} * elements.factor >> 64) >> elements.shift;
    };
    for (const uint64_t number : numbers) {
      EXPECT_EQ(divide(number), number / divisor) << number << " / " << divisor;
      const uint64_t below = number - number % divisor;  // the next lower multiple, and before it
      EXPECT_EQ(divide(below), below / divisor) << below << " / " << divisor;
      if (below == 0) continue;
      EXPECT_EQ(divide(below - 1), (below - 1) / divisor) << below << " / " << divisor;
    }
  }
}

TEST(ActivationLaunches, DivideByMultiplyingIn32Bits) {
  for (const uint64_t divisor :
       {2ull, 3ull, 5ull, 128ull, 1000ull, 1804ull, (1ull << 30) + 1, (1ull << 31) - 1}) {
    opdock::Elements<1> elements = {};
    opdock::detail::set_divisor(&elements, divisor, 32);
    ASSERT_LT(elements.factor, 1ull << 32) << divisor;
    for (const uint64_t number :
         {uint64_t{0}, uint64_t{1}, divisor - 1, divisor, 1000 % divisor, (uint64_t{1} << 31) - 1,
          (uint64_t{1} << 31) / divisor * divisor - 1})
      EXPECT_EQ(number * elements.factor >> 32 >> elements.shift, number / divisor)
          << number << " / " << divisor;
  }
}

// Expects enough blocks for so many threads: of 512 threads if that gives one for each of the 132
// multiprocessors, else smaller ones.
void expect_blocks(const Launch& launch, int64_t threads) {
  const uint32_t size = threads >= 132 * 512 ? 512 : threads >= 132 * 256 ? 256 : 128;
  EXPECT_EQ(launch.how.block[0], size) << threads;
  EXPECT_EQ(launch.how.grid[0], (threads + size - 1) / size) << threads;
}

TEST(ActivationLaunches, HaveBlocksForAllMultiprocessors) {
  const Op backward("activation", "silu_backward");
  for (int64_t threads : {1, 200, 132 * 256 - 1, 132 * 256, 132 * 512 - 1, 132 * 512, 100000}) {
    Array x(Type::kFloat16, {threads, 8}), out(Type::kFloat16, {threads, 8});
    std::vector<Launch> launches;
    ASSERT_EQ(backward.record({x.value(), x.value()}, {&out}, 32, &launches).status, OPDOCK_OK);
    expect_blocks(launches.at(0), threads);
  }
}

// An H200 is distinguished from an H100 by its memory; for AMD's GPUs and older ones the block size
// does not depend on it.
TEST(ActivationLaunches, HaveSmallBlocksOnAnH200) {
  const Op backward("activation", "silu_backward");
  constexpr uint64_t kGigabyte = uint64_t{1} << 30;
  const auto threads_on = [&](int32_t type, uint32_t arch_major, uint64_t memory_bytes) {
    Array x(Type::kFloat16, {1 << 17, 8}), out(Type::kFloat16, {1 << 17, 8});
    RecordedGpu gpu;
    gpu.type = type;
    gpu.arch_major = arch_major;
    gpu.memory_bytes = memory_bytes;
    std::vector<Launch> launches;
    EXPECT_EQ(backward.record({x.value(), x.value()}, {&out}, gpu, &launches).status, OPDOCK_OK);
    EXPECT_EQ(launches.at(0).how.grid[0] * launches[0].how.block[0], 1u << 17);
    return launches[0].how.block[0];
  };
  EXPECT_EQ(threads_on(OPDOCK_CUDA, 9, 80 * kGigabyte), 512u);
  EXPECT_EQ(threads_on(OPDOCK_CUDA, 9, 96 * kGigabyte), 512u);
  EXPECT_EQ(threads_on(OPDOCK_CUDA, 9, 140 * kGigabyte), 128u);
  EXPECT_EQ(threads_on(OPDOCK_CUDA, 10, 180 * kGigabyte), 512u);
  EXPECT_EQ(threads_on(OPDOCK_ROCM, 9, 192 * kGigabyte), 512u);
}

// A kernel has a thread for each vector, and one more if the memory begins inside a vector.
TEST(ActivationLaunches, HaveAThreadForEachVector) {
  const Op backward("activation", "silu_backward");
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (int64_t length : launch_lengths())
      for (bool odd : {false, true}) {
        Array x(type, {5, length}, {length, 1}, odd), out(type, {5, length});
        std::vector<Launch> launches;
        ASSERT_EQ(backward.record({x.value(), x.value()}, {&out}, 32, &launches).status, OPDOCK_OK);
        ASSERT_EQ(launches.size(), 1u);
        // Without a bias all rows count as one.
        const int64_t size = per_vector(type), before = odd ? size - 1 : 0;
        expect_blocks(launches[0], (5 * length + before + size - 1) / size);
      }
}

// The size of the units that are read: the largest number of bytes that divides the rows' ends and
// every tensor that is not contiguous.
TEST(ActivationLaunches, JoinOutputsOfUnevenRows) {
  const auto joined = [](int64_t length, std::vector<int64_t> strides, int first_odd = -1) {
    opdock::Elements<3> at = {};
    static char memory[64];
    char* const begin = memory + (16 - reinterpret_cast<uintptr_t>(memory) % 16);
    at.length = length;
    at.rows.count = 6;
    at.rows.ndim = 1;
    for (int t = 0; t < 3; ++t) {
      at.rows.stride[t][0] = strides[static_cast<size_t>(t)];
      at.data[t] = begin + (t == first_odd ? 2 : 0);
    }
    return opdock::join_outputs(&at, 2) ? at.unit : 0;
  };
  EXPECT_EQ(joined(500, {500, 1000, 0}), 8);  // halves of rows of 1000
  EXPECT_EQ(joined(504, {504, 1000, 0}), 8);  // whole vectors, but for a tensor's rows
  EXPECT_EQ(joined(510, {510, 1020, 0}), 4);
  EXPECT_EQ(joined(1023, {1023, 1023, 0}), 2);
  EXPECT_EQ(joined(500, {500, 1000, 0}, 2), 2);  // by the address
  EXPECT_EQ(joined(500, {500, 1001, 0}), 2);
  EXPECT_EQ(joined(7, {7, 7, 0}), 0);           // more than one end in a vector
  EXPECT_EQ(joined(1023, {1024, 1023, 0}), 0);  // outputs with gaps
  EXPECT_EQ(joined(1023, {1023, 1023, 0}, 0), 0);
  EXPECT_EQ(joined(1023, {1023, 1023, 0}, 1), 0);
  EXPECT_EQ(joined(1023, {1023, -1023, 0}), 0);
  EXPECT_EQ(joined((1 << 30) + 1, {(1 << 30) + 1, (1 << 30) + 1, 0}), 0);  // 32 bits
  EXPECT_EQ(joined(1023, {1023, 1 << 30, 0}), 0);
}

// Launches begin early if they have at most as many threads as a GPU holds at once.
TEST(ActivationLaunches, BeginEarlyIfTheyAreSmall) {
  const Op backward("activation", "silu_backward");
  for (int64_t blocks : {4, 5}) {
    Array x(Type::kFloat16, {blocks, 256 * 8}), out(Type::kFloat16, {blocks, 256 * 8});
    for (uint32_t arch : {8u, 9u}) {
      std::vector<Launch> launches;
      const RecordedGpu gpu = {32, OPDOCK_CUDA, arch, 1};
      ASSERT_EQ(backward.record({x.value(), x.value()}, {&out}, gpu, &launches).status, OPDOCK_OK);
      const bool early = blocks == 4 && arch == 9;
      EXPECT_EQ(launches.at(0).how.flags, early ? OPDOCK_LAUNCH_PROGRAMMATIC : 0u);
    }
  }
}

TEST(ActivationLaunches, SumInTwoStages) {
  const Op backward("activation", "bias_add_backward");
  for (int64_t rows : {1, 16, 17, 4000, 600000}) {
    const opdock::ColumnChunks chunks = opdock::column_chunks(rows, 4);
    EXPECT_LE(chunks.count, 4096);
    EXPECT_GE(chunks.count * chunks.rows, rows);
    EXPECT_LT((chunks.count - 1) * chunks.rows, rows);
    Array grad(Type::kFloat16, {rows, 4}), out(Type::kFloat16, {rows, 4}),
        sums(Type::kFloat16, {4});
    std::vector<Launch> launches;
    const Result result = backward.record({grad.value()}, {&out, &sums}, 32, &launches);
    ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
    EXPECT_EQ(result.workspace_bytes, static_cast<uint64_t>(chunks.count) * 4 * sizeof(float));
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches[0].how.grid[1], chunks.count);
    EXPECT_EQ(launches[0].kernel, "activation::backward_sums<opdock::half, 0>");
    EXPECT_EQ(launches[1].kernel, "activation::totals");
  }
}

TEST(ActivationLaunches, NothingForEmptyTensorsButSumsOfNoRows) {
  const Op silu("activation", "silu_backward"), backward("activation", "bias_add_backward");
  Array x(Type::kFloat32, {0, 8}), out(Type::kFloat32, {0, 8}), sums(Type::kFloat32, {8});
  std::vector<Launch> launches;
  EXPECT_EQ(silu.record({x.value(), x.value()}, {&out}, 32, &launches).status, OPDOCK_OK);
  EXPECT_TRUE(launches.empty());
  EXPECT_EQ(backward.record({x.value()}, {&out, &sums}, 32, &launches).status, OPDOCK_OK);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].kernel, "activation::totals");
}

}  // namespace
}  // namespace opdock_test::activation_plugin
