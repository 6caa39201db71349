// Which kernels the plugins launch, and how: without a GPU, by recording what they ask for.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "row_cases.h"

namespace opdock_test {
namespace {

// Calls run(type, length, warp, odd, &launches) for every `odd` below `cases`: it records one
// launch for five rows, with argument number `odd` misaligned (0: none).
template <class Run>
void expect_every_launch_covers(const std::string& plugin, int cases, const Run& run) {
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (int64_t length : launch_lengths())
      for (uint32_t warp : {32u, 64u})
        for (int odd = 0; odd < cases; ++odd) {
          std::vector<Launch> launches;
          const Result result = run(type, length, warp, odd, &launches);
          ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
          ASSERT_EQ(launches.size(), 1u);
          SCOPED_TRACE("misaligned argument " + std::to_string(odd));
          expect_covers(launches[0], plugin, type, length, 5, warp, odd != 0);
        }
}

TEST(Launches, SoftmaxCoversEveryRow) {
  const Op op("softmax", "softmax");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array x(type, {5, length}, {length, 1}, odd), out(type, {5, length});
    return op.record({x.value(), number(1), none(), boolean(false)}, {&out}, warp, launches);
  };
  expect_every_launch_covers("softmax", 2, run);
}

TEST(Launches, NormCoversEveryRow) {
  const Op op("norm", "add_layer_norm");
  auto run = [&](Type type, int64_t length, uint32_t warp, int odd, std::vector<Launch>* launches) {
    Array x(type, {5, length}), residual(type, {5, length}, {length, 1}, odd == 1);
    Array weight(type, {length}, {1}, odd == 2), bias(type, {length}, {1}, odd == 3);
    Array out(type, {5, length}), sum(type, {5, length});
    return op.record({x.value(), residual.value(), weight.value(), bias.value(), number(1e-5)},
                     {&out, &sum}, warp, launches);
  };
  expect_every_launch_covers("norm", 4, run);
}

TEST(Launches, NothingForEmptyTensors) {
  const Op softmax("softmax", "softmax"), norm("norm", "layer_norm");
  Array x(Type::kFloat32, {0, 8}), out(Type::kFloat32, {0, 8});
  std::vector<Launch> launches;
  EXPECT_EQ(
      softmax.record({x.value(), number(1), none(), boolean(false)}, {&out}, 32, &launches).status,
      OPDOCK_OK);
  EXPECT_EQ(norm.record({x.value(), none(), none(), number(1)}, {&out}, 32, &launches).status,
            OPDOCK_OK);
  EXPECT_TRUE(launches.empty());
}

TEST(Launches, NoopLaunchesOneEmptyKernel) {
  const Op op("noop", "noop_launch");
  Array x(Type::kFloat32, {8});
  std::vector<Launch> launches;
  ASSERT_EQ(op.record({x.value()}, {}, 32, &launches).status, OPDOCK_OK);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].kernel, "noop");
  EXPECT_EQ(launches[0].how.num_args, 0u);
}

}  // namespace
}  // namespace opdock_test
