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

TEST(NormLaunches, CoverEveryRowOfTheGradient) {
  const Op backward("norm", "rms_norm_backward");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array grad(type, {5, length}, {length, 1}, odd == 1), x(type, {5, length});
    Array more(type, {5, length}, {length, 1}, odd == 2), out(type, {5, length});
    Array weight(type, {length}, {1}, odd == 3), weights(type, {length});
    const Result result =
        backward.record({grad.value(), x.value(), weight.value(), more.value(), number(1e-5)},
                        {&out, &weights}, warp, launches);
    if (launches->size() == 3) launches->resize(1);  // the others sum over rows
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
  // Two sums of each chunk and column, and three numbers of each row.
  EXPECT_EQ(result.workspace_bytes,
            static_cast<uint64_t>(2 * chunks * length + 3 * rows) * sizeof(float));
  ASSERT_EQ(launches.size(), 4u);
  EXPECT_EQ(launches[1].kernel, "layernorm::backward::weight_sums<opdock::half>");
  EXPECT_EQ(launches[1].how.grid[1], chunks);
  EXPECT_EQ(launches[2].kernel, "layernorm::backward::totals");
  EXPECT_EQ(launches[3].kernel, "layernorm::backward::totals");
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
