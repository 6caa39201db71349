// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>

#include "harness.h"

namespace opdock_test::adam_plugin {
namespace {

// Returns the launches of a step for tensors of these sizes.
std::vector<Launch> launches_of(const std::vector<int64_t>& sizes) {
  std::deque<Array> arrays;
  std::vector<opdock_value> lists[4];
  for (const int64_t size : sizes)
    for (std::vector<opdock_value>& list : lists)
      list.push_back(arrays.emplace_back(Type::kFloat32, std::vector<int64_t>{size}).value());
  std::deque<opdock_list> views;
  std::vector<opdock_value> args;
  for (const std::vector<opdock_value>& list : lists)
    args.push_back(list_value(&views.emplace_back(opdock_list{list.data(), list.size()})));
  Array step(Type::kFloat32, {});
  args.push_back(step.value());
  for (const double value : {0.01, 0.9, 0.999, 1e-8, 0.1}) args.push_back(number(value));
  args.push_back(boolean(false));
  args.resize(15);
  std::vector<Launch> launches;
  const Result result = Op("adam", "adamw_").record(args, {}, 32, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  return launches;
}

TEST(AdamLaunches, TakeAsManyTensorsAsTheirParametersHold) {
  for (const size_t count : {1u, 76u, 77u, 152u, 1000u}) {
    const std::vector<Launch> launches = launches_of(std::vector<int64_t>(count, 1025));
    ASSERT_EQ(launches.size(), 1 + (count + 75) / 76);
    EXPECT_EQ(launches[0].how.block[0], 1u);
    uint32_t blocks = 0;
    for (size_t i = 1; i < launches.size(); ++i) {
      EXPECT_EQ(launches[i].kernel, "adam::update<float>");
      blocks += launches[i].how.grid[0];
      // The first launch needs what the launch before it writes; the others run at the same time.
      EXPECT_EQ(launches[i].how.flags, i == 1 ? 0 : OPDOCK_LAUNCH_PROGRAMMATIC);
    }
    EXPECT_EQ(blocks, 2 * count);  // blocks of 1024 elements
  }
}

TEST(AdamLaunches, PassOverEmptyTensors) {
  EXPECT_EQ(launches_of({}).size(), 1u) << "which counts the step";
  EXPECT_EQ(launches_of({0, 0}).size(), 1u);
  std::vector<int64_t> sizes(1000, 0);
  sizes[500] = 1;
  const std::vector<Launch> launches = launches_of(sizes);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[1].how.grid[0], 1u);
}

}  // namespace
}  // namespace opdock_test::adam_plugin
