// SPDX-License-Identifier: Apache-2.0
#include "launches.h"
#include "opdock/columns.cuh"

namespace opdock_test::norm_plugin {
namespace {

TEST(NormLaunches, CoverEveryRow) {
  const Op add_layer_norm("norm", "add_layer_norm");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array x(type, {5, length}), residual(type, {5, length}, {length, 1}, odd == 1);
    Array weight(type, {length}, {1}, odd == 2), bias(type, {length}, {1}, odd == 3);
    Array out(type, {5, length}), sum(type, {5, length});
    return add_layer_norm.record(
        {x.value(), residual.value(), weight.value(), bias.value(), number(1e-5)}, {&out, &sum},
        warp, launches);
  };
  expect_every_launch_covers("norm", 4, run);
  expect_every_way_covers("norm", 4, run);
}

TEST(NormLaunches, CoverEveryRowOfASumWithABias) {
  const Op op("norm", "bias_add_layer_norm");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array x(type, {5, length}), residual(type, {5, length}, {length, 1}, odd == 1);
    Array input_bias(type, {length}, {1}, odd == 2), weight(type, {length}, {1}, odd == 3);
    Array out(type, {5, length}), sum(type, {5, length});
    return op.record({x.value(), residual.value(), input_bias.value(), weight.value(), none(),
                      number(1e-5), boolean(true)},
                     {&out, &sum}, warp, launches);
  };
  expect_every_launch_covers("norm", 4, run);
  expect_every_way_covers("norm", 4, run);
}

// Tests rows of any alignment, and more than all multiprocessors take at once.
TEST(NormLaunches, CoverManyRows) {
  const Op rms_norm("norm", "rms_norm");
  const int64_t rows = 1000;
  for (Type type : {Type::kFloat32, Type::kFloat16})
    for (int64_t length : {1, 24, 127, 1000, 1024, 2049, 4100})
      for (uint32_t warp : {32u, 64u}) {
        Array x(type, {rows, length}, {length + 1, 1}), out(type, {rows, length});
        std::vector<Launch> launches;
        const Result result =
            rms_norm.record({x.value(), none(), number(1e-5)}, {&out}, warp, &launches);
        ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
        ASSERT_EQ(launches.size(), 1u) << length;
        EXPECT_NE(launches[0].kernel.find("long_rows"), std::string::npos);
        expect_covers(launches[0], "norm", type, length, rows, warp, true);
      }
}

TEST(NormLaunches, CoverEveryRowOfTheGradient) {
  const Op backward("norm", "rms_norm_backward");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array grad(type, {5, length}, {length, 1}, odd == 1), x(type, {5, length});
    Array more(type, {5, length}, {length, 1}, odd == 2), out(type, {5, length});
    Array weight(type, {length}, {1}, odd == 3), weights(type, {length});
    const Result result =
        backward.record({grad.value(), x.value(), weight.value(), more.value(), number(1e-5)},
                        {&out, &weights}, warp, launches);
    EXPECT_EQ(launches->size(), 3u);
    launches->resize(1);  // the other launches sum over rows
    return result;
  };
  expect_every_launch_covers("norm", 4, run);
}

TEST(NormLaunches, SumTheGradientsOfWeightAndBiasInTwoStages) {
  const Op backward("norm", "layer_norm_backward");
  const int64_t rows = 4000, length = 24, chunks = opdock::column_chunks(rows, length).count;
  Array grad(Type::kFloat16, {rows, length}), x(Type::kFloat16, {rows, length});
  Array weight(Type::kFloat16, {length}), out(Type::kFloat16, {rows, length});
  Array weights(Type::kFloat16, {length}), biases(Type::kFloat16, {length});
  std::vector<Launch> launches;
  const Result result = backward.record(
      {grad.value(), x.value(), weight.value(), weight.value(), none(), number(1e-5)},
      {&out, &weights, &biases}, 32, &launches);
  ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
  // Two sums for each chunk and column, and three numbers for each row.
  EXPECT_EQ(result.workspace_bytes,
            static_cast<uint64_t>(2 * chunks * length + 3 * rows) * sizeof(float));
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[1].kernel, "layernorm::backward::weight_sums<opdock::half>");
  EXPECT_EQ(launches[1].how.grid[1], chunks);
  EXPECT_EQ(launches[2].kernel, "layernorm::backward::totals");
  EXPECT_EQ(launches[2].how.grid[1], 2u);
}

// Returns the launches that compute all gradients in one pass, on a GPU with so much shared memory.
// `odd`: which argument is misaligned (0: none).
std::vector<Launch> backward_launches(Type type, int64_t rows, int64_t length,
                                      const RecordedGpu& gpu, int odd = 0, bool added = false) {
  const Op backward("norm", "layer_norm_backward");
  Array grad(type, {rows, length}, {length, 1}, odd == 1), x(type, {rows, length});
  Array weight(type, {length}, {1}, odd == 2), out(type, {rows, length});
  Array weights(type, {length}), biases(type, {length});
  std::vector<Launch> launches;
  const Result result = backward.record({grad.value(), x.value(), weight.value(), weight.value(),
                                         added ? grad.value() : none(), number(1e-5)},
                                        {&out, &weights, &biases}, gpu, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  return launches;
}

TEST(NormLaunches, TakePlainRowsInTurnForAllGradientsAtOnce) {
  for (uint32_t warp : {32u, 64u})
    for (uint32_t kib : {64u, 227u})
      for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
        for (int64_t length : launch_lengths())
          for (int64_t rows : {int64_t{1}, 4 + 200000 / (length * length)})
            for (bool added : {false, true}) {
              const RecordedGpu gpu = {warp, warp == 32 ? OPDOCK_CUDA : OPDOCK_ROCM, 9, 132,
                                       kib * 1024};
              const auto launches = backward_launches(type, rows, length, gpu, 0, added);
              SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(length));
              const int64_t bytes = type == Type::kFloat32 ? 4 : 2, vectors = length * bytes / 16;
              const opdock_launch& how = launches[0].how;
              if (launches[0].kernel.find("layernorm::backward::loop_") == std::string::npos) {
                ASSERT_EQ(launches.size(), 3u);
                // The row is too short, not of whole vectors, or too long for registers or shared
                // memory.
                const int64_t most = (kib == 64 ? 1024 : 8192 - 512) * (warp == 32 ? 8 : 1);
                EXPECT_TRUE(length * bytes % 16 != 0 || vectors < warp || length > most) << kib;
                continue;
              }
              ASSERT_EQ(launches.size(), 2u);
              EXPECT_EQ(length * bytes % 16, 0);
              EXPECT_LE(how.grid[0], 132u);
              EXPECT_EQ(how.block[0] % warp, 0);
              EXPECT_LE(how.block[0], 512);
              const int64_t cluster = how.cluster[0] == 0 ? 1 : how.cluster[0];
              EXPECT_EQ(launches[0].kernel.find("loop_slices") != std::string::npos, cluster > 1);
              EXPECT_EQ(how.grid[0] % cluster, 0);
              EXPECT_TRUE(cluster == 1 || warp == 32);
              // No more blocks than necessary.
              EXPECT_TRUE(cluster == 1 || length > (kib == 64 ? 1024 : 8192 - 512) * cluster / 2);
              // 16 elements a thread, with their weights in float, and copies of two or three rows
              // of two or three tensors; and the sums.
              EXPECT_GE(how.block[0] * 16 * cluster, length);
              const int64_t copies = (cluster > 1 && bytes == 2 ? 3 : 2) * (added ? 3 : 2);
              EXPECT_EQ(how.shared_bytes, how.block[0] * 16 * (bytes * copies + 4) +
                                              (cluster > 1 ? 32 + 512 * cluster : 1024));
              EXPECT_LE(how.shared_bytes, kib * 1024);
              EXPECT_EQ(launches[1].kernel, "layernorm::backward::totals");
              EXPECT_EQ(launches[1].how.grid[1], 2u);
            }
}

// No cluster has to wait until another has ended.
TEST(NormLaunches, HaveAsManyClustersAsRunAtOnce) {
  auto blocks = [](int64_t length, uint32_t arch, uint32_t multiprocessors) {
    const RecordedGpu gpu = {32, OPDOCK_CUDA, arch, multiprocessors, 227 * 1024};
    const auto launches = backward_launches(Type::kFloat16, 400, length, gpu);
    EXPECT_EQ(launches[0].kernel, "layernorm::backward::loop_slices<opdock::half>");
    EXPECT_EQ(launches[0].how.cluster[0], length / 8192);
    return launches[0].how.grid[0];
  };
  // The least number of clusters that fit into 8 groups of at most 18 multiprocessors, in pairs.
  auto in_groups = [](int64_t multiprocessors, int64_t cluster) {
    // least[n]: the least number in the groups so far, if they have n multiprocessors together.
    std::vector<int64_t> least(1, 0);
    for (int group = 0; group < 8; ++group) {
      std::vector<int64_t> next(least.size() + 18, 1000);
      for (size_t before = 0; before < least.size(); ++before)
        for (size_t size = 0; size <= 18; size += 2)
          next[before + size] =
              std::min(next[before + size], least[before] + static_cast<int64_t>(size) / cluster);
      least = next;
    }
    return least[static_cast<size_t>(multiprocessors)];
  };
  for (int64_t cluster : {2, 4, 8})
    EXPECT_LE(blocks(8192 * cluster, 9, 132), in_groups(132, cluster) * cluster);
  EXPECT_EQ(blocks(16384, 9, 132), 132u);
  EXPECT_EQ(blocks(32768, 9, 132), 112u);
  EXPECT_EQ(blocks(65536, 9, 132), 104u);
  EXPECT_EQ(blocks(65536, 9, 8), 8u);
}

TEST(NormLaunches, TakeOtherRowsInTwoPasses) {
  const RecordedGpu large = {32, OPDOCK_CUDA, 9, 132, 227 * 1024};
  const RecordedGpu small = {32, OPDOCK_CUDA, 7, 80, 48 * 1024};
  EXPECT_EQ(backward_launches(Type::kFloat16, 64, 8192, large).size(), 2u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 64, 8192, large, 1).size(), 3u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 64, 8192, large, 2).size(), 3u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 64, 8192, small).size(), 3u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 64, 8196, large).size(), 3u);
  const RecordedGpu older = {32, OPDOCK_CUDA, 8, 108, 163 * 1024};
  EXPECT_EQ(backward_launches(Type::kFloat16, 64, 8192, older).size(), 2u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 64, 8200, older).size(), 3u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 4, 65536, large).size(), 2u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 4, 65544, large).size(), 3u);
  EXPECT_EQ(backward_launches(Type::kFloat16, 4, 65536, large, 1).size(), 3u);
}

TEST(NormLaunches, NothingForEmptyTensors) {
  const Op layer_norm("norm", "layer_norm");
  Array x(Type::kFloat32, {0, 8}), out(Type::kFloat32, {0, 8});
  std::vector<Launch> launches;
  const std::vector<opdock_value> args = {x.value(), none(), none(), number(1)};
  EXPECT_EQ(layer_norm.record(args, {&out}, 32, &launches).status, OPDOCK_OK);
  EXPECT_TRUE(launches.empty());
}

}  // namespace
}  // namespace opdock_test::norm_plugin
