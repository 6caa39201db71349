// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

namespace opdock_test::softmax_plugin {
namespace {

TEST(SoftmaxLaunches, CoverEveryRow) {
  const Op softmax("softmax", "softmax");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array x(type, {5, length}, {length, 1}, odd), out(type, {5, length});
    return softmax.record({x.value(), number(1), none(), boolean(false)}, {&out}, warp, launches);
  };
  expect_every_launch_covers("softmax", 2, run);
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
