// Tests noop: the call path with no work at its end.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "harness.h"

namespace opdock_test::noop_plugin {
namespace {

TEST(Noop, DoesNothingOnTheCpu) {
  for (const char* name : {"noop", "noop_launch"}) {
    const Op op("noop", name);
    Array x(Type::kFloat32, {3});
    x.fill(1);
    const double before = x.get(0);
    const Result result = op.call({x.value()}, {});
    EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
    EXPECT_EQ(x.get(0), before);
    EXPECT_EQ(op.descriptor().num_shape_rules, 0u);
  }
}

TEST(Noop, PrepareIsPresentOnlyWhereItIsDefined) {
  EXPECT_EQ(Op("noop", "noop").descriptor().prepare, nullptr);
  EXPECT_NE(Op("noop", "noop_launch").descriptor().prepare, nullptr);
}

TEST(Noop, LaunchesOneEmptyKernel) {
  const Op op("noop", "noop_launch");
  Array x(Type::kFloat32, {8});
  std::vector<Launch> launches;
  ASSERT_EQ(op.record({x.value()}, {}, 32, &launches).status, OPDOCK_OK);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].kernel, "noop");
  EXPECT_EQ(launches[0].how.num_args, 0u);
}

}  // namespace
}  // namespace opdock_test::noop_plugin
