// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

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
