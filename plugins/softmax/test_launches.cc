// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

namespace opdock_test::softmax_plugin {
namespace {

Result record(Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
  static const Op softmax("softmax", "softmax");
  Array x(type, {5, length}, {length, 1}, odd), out(type, {5, length});
  return softmax.record({x.value(), number(1), none(), boolean(false)}, {&out}, warp, launches);
}

TEST(SoftmaxLaunches, CoverEveryRow) {
  expect_every_launch_covers("softmax", 2, record);
}

TEST(SoftmaxLaunches, CoverEveryRowInEachWay) {
  expect_every_way_covers("softmax", 2, record);
}

TEST(SoftmaxLaunches, CoverEveryCausalRow) {
  const Op softmax("softmax", "softmax");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array x(type, {5, length}, {length, 1}, odd), out(type, {5, length});
    return softmax.record({x.value(), number(1), none(), boolean(true)}, {&out}, warp, launches);
  };
  expect_every_launch_covers("softmax", 2, run);
  expect_every_way_covers("softmax", 2, run);
}

// Returns a block's threads and the number of blocks that share a row, for so many rows of 32-bit
// elements on an sm_90 with 132 multiprocessors.
std::pair<uint32_t, uint32_t> shape_of(int64_t rows, int64_t length) {
  const Op softmax("softmax", "softmax");
  Array x(Type::kFloat32, {rows, length}), out(Type::kFloat32, {rows, length});
  std::vector<Launch> launches;
  const std::vector<opdock_value> args = {x.value(), number(1), none(), boolean(false)};
  const Result result = softmax.record(args, {&out}, {32, OPDOCK_CUDA, 9, 132}, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  const opdock_launch& how = launches.at(0).how;
  return {how.block[0], std::max(how.cluster[0], 1u)};
}

TEST(SoftmaxLaunches, HaveManyThreadsForFewRows) {
  EXPECT_EQ(shape_of(133, 4096), std::pair(128u, 1u));
  EXPECT_EQ(shape_of(132, 4096), std::pair(512u, 1u));
}

// A single block for a row has at most 512 threads; when several blocks share a row, each has 256,
// unless that would take more than 8 blocks.
TEST(SoftmaxLaunches, SpreadLongRowsOverClusters) {
  EXPECT_EQ(shape_of(133, 16384), std::pair(512u, 1u));
  EXPECT_EQ(shape_of(133, 16388), std::pair(256u, 4u));
  EXPECT_EQ(shape_of(133, 32772), std::pair(256u, 8u));
  EXPECT_EQ(shape_of(133, 65540), std::pair(512u, 8u));
  EXPECT_EQ(shape_of(133, 262144), std::pair(1024u, 8u));
}

TEST(SoftmaxLaunches, CoverEveryRowOfTheGradient) {
  const Op backward("softmax", "softmax_backward");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array grad(type, {5, length}, {length, 1}, odd == 1), result(type, {5, length});
    Array out(type, {5, length});
    return backward.record({grad.value(), result.value(), number(1), boolean(false)}, {&out}, warp,
                           launches);
  };
  expect_every_launch_covers("softmax", 2, run);
  expect_every_way_covers("softmax", 2, run);
}

// Two sets of kernels share the narrow rows, but their other ways differ.
TEST(SoftmaxLaunches, AskAnotherQuestionForEachSetOfKernels) {
  const Op backward("softmax", "softmax_backward");
  Array grad(Type::kFloat32, {64, 64}), result(Type::kFloat32, {64, 64});
  Array out(Type::kFloat32, {64, 64});
  std::vector<Launch> launches;
  Answer own(-1);
  for (bool causal : {false, true})
    ASSERT_EQ(backward
                  .record({grad.value(), result.value(), number(1), boolean(causal)}, {&out}, 32,
                          &launches)
                  .status,
              OPDOCK_OK);
  EXPECT_EQ(launches.at(0).kernel, launches.at(1).kernel);
  EXPECT_NE(own.asked.at(0).first, own.asked.at(1).first);
}

// Small launches begin early: those with at most as many threads as the GPU holds at once, where
// kernels can wait for the previous launch.
TEST(SoftmaxLaunches, BeginEarlyIfTheyAreSmall) {
  const Op softmax("softmax", "softmax");
  const auto flags_of = [&](int64_t rows, const RecordedGpu& gpu) {
    Array x(Type::kFloat16, {rows, 4096}), out(Type::kFloat16, {rows, 4096});
    std::vector<Launch> launches;
    const std::vector<opdock_value> args = {x.value(), number(1), none(), boolean(false)};
    EXPECT_EQ(softmax.record(args, {&out}, gpu, &launches).status, OPDOCK_OK);
    EXPECT_EQ(launches.at(0).how.block[0], 256u);
    return launches.at(0).how.flags;
  };
  const uint32_t early = OPDOCK_LAUNCH_PROGRAMMATIC;
  EXPECT_EQ(flags_of(4, {32, OPDOCK_CUDA, 9, 1}), early);
  EXPECT_EQ(flags_of(5, {32, OPDOCK_CUDA, 9, 1}), 0u);
  EXPECT_EQ(flags_of(8, {32, OPDOCK_CUDA, 10, 2}), early);
  EXPECT_EQ(flags_of(4, {32, OPDOCK_CUDA, 8, 132}), 0u);
  EXPECT_EQ(flags_of(4, {64, OPDOCK_ROCM, 9, 132}), 0u);
  // Kernels in larger grids do not wait.
  EXPECT_EQ(flags_of(2048, {32, OPDOCK_CUDA, 9, 2000}), early);
  EXPECT_EQ(flags_of(2049, {32, OPDOCK_CUDA, 9, 2000}), 0u);
}

// Broadcast masks whose rows are all aligned are read together with the scores; other masks, and
// those of long rows, are read by the general kernels.
TEST(SoftmaxLaunches, ReadMasksByVectors) {
  static const Op softmax("softmax", "softmax"), log_softmax("softmax", "log_softmax");
  const auto kernel_of = [&](const Op& op, int64_t keys, int64_t mask_keys, int odd, bool causal) {
    Array x(Type::kFloat16, {2, 3, 4, keys}), out(Type::kFloat16, {2, 3, 4, keys});
    Array mask(Type::kFloat16, {2, 1, 1, mask_keys}, {}, odd);
    std::vector<Launch> launches;
    const Result result = op.record({x.value(), number(1), mask.value(), boolean(causal)}, {&out},
                                    {32, OPDOCK_CUDA, 9, 132}, &launches);
    EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
    const std::string name = launches.at(0).kernel;
    return name.substr(0, name.find('<'));
  };
  for (const bool causal : {false, true}) {
    const std::string vectors = "softmax::masked_vectors::", any = "softmax::masked::";
    EXPECT_EQ(kernel_of(softmax, 128, 128, 0, causal), vectors + "narrow_rows");
    for (const int64_t keys : {1024, 4096, 8192, 16384})
      EXPECT_EQ(kernel_of(softmax, keys, keys, 0, causal), vectors + "block_rows") << keys;
    EXPECT_EQ(kernel_of(softmax, 300000, 300000, 0, causal), any + "long_rows");
    EXPECT_EQ(kernel_of(softmax, 128, 128, 1, causal), any + "narrow_rows");
    EXPECT_EQ(kernel_of(softmax, 132, 132, 0, causal), any + "narrow_rows");
    EXPECT_EQ(kernel_of(softmax, 128, 1, 0, causal), any + "narrow_rows");
    EXPECT_EQ(kernel_of(log_softmax, 128, 128, 0, causal), any + "narrow_rows");
  }
}

TEST(SoftmaxLaunches, NothingForEmptyTensors) {
  const Op softmax("softmax", "softmax");
  Array x(Type::kFloat32, {0, 8}), out(Type::kFloat32, {0, 8});
  std::vector<Launch> launches;
  const std::vector<opdock_value> args = {x.value(), number(1), none(), boolean(false)};
  EXPECT_EQ(softmax.record(args, {&out}, 32, &launches).status, OPDOCK_OK);
  EXPECT_TRUE(launches.empty());
}

}  // namespace
}  // namespace opdock_test::softmax_plugin
