// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>

#include "harness.h"

namespace opdock_test::adam_plugin {
namespace {

// Returns the launches of a step for tensors of these sizes. num_lists: with the lists of params
// and gradients.
std::vector<Launch> launches_of(const std::vector<int64_t>& sizes, const char* op = "adamw_",
                                size_t num_lists = 4, bool has_step = true,
                                const std::vector<double>& numbers = {0.01, 0.9, 0.999, 1e-8, 0.1},
                                size_t flags = 1, bool has_result = false) {
  std::deque<Array> arrays;
  std::vector<std::vector<opdock_value>> lists(num_lists);
  for (const int64_t size : sizes)
    for (std::vector<opdock_value>& list : lists)
      list.push_back(arrays.emplace_back(Type::kFloat32, std::vector<int64_t>{size}).value());
  std::deque<opdock_list> views;
  std::vector<opdock_value> args;
  for (const std::vector<opdock_value>& list : lists)
    args.push_back(list_value(&views.emplace_back(opdock_list{list.data(), list.size()})));
  Array step(Type::kFloat32, {});
  if (has_step) args.push_back(step.value());
  for (const double value : numbers) args.push_back(number(value));
  for (size_t i = 0; i < flags; ++i) args.push_back(boolean(false));
  args.resize(args.size() + 4);  // masters, lr_tensor, grad_scale, found_inf
  Array result(Type::kFloat32, {static_cast<int64_t>(sizes.size())});
  std::vector<Launch> launches;
  const Result found =
      Op("adam", op)
          .record(args, has_result ? std::vector<Array*>{&result} : std::vector<Array*>{}, 32,
                  &launches);
  EXPECT_EQ(found.status, OPDOCK_OK) << found.text;
  return launches;
}

std::vector<Launch> launches_of_lamb(const std::vector<int64_t>& sizes) {
  return launches_of(sizes, "lamb_", 4, true, {0.01, 0.9, 0.999, 1e-8, 0.1, 10, 0.01}, 3, true);
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

TEST(LambLaunches, AreTwoForEachSeventyTensors) {
  for (const size_t count : {1u, 70u, 71u}) {
    const std::vector<Launch> launches = launches_of_lamb(std::vector<int64_t>(count, 4097));
    const size_t each = (count + 69) / 70;
    ASSERT_EQ(launches.size(), 2 * each);
    for (size_t i = 0; i < launches.size(); ++i) {
      EXPECT_EQ(launches[i].kernel, i < each ? "lamb::norms<float>" : "lamb::update<float>");
      EXPECT_EQ(launches[i].how.grid[0], 2 * std::min<size_t>(70, count - i % each * 70));
      // The updates wait for all norms, and the norms for what was launched before them.
      EXPECT_EQ(launches[i].how.flags, i % each == 0 ? 0 : OPDOCK_LAUNCH_PROGRAMMATIC);
    }
  }
}

TEST(LambLaunches, HaveAtMost512BlocksOfATensor) {
  const std::vector<Launch> launches = launches_of_lamb({(int64_t{1} << 22) + 1, 0});
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_LE(launches[0].how.grid[0], 513u) << "the empty tensor has a block for its ratio";
  EXPECT_GT(launches[0].how.grid[0], 400u);
  EXPECT_EQ(launches_of_lamb({}).size(), 1u) << "which counts the step";
}

TEST(LionLaunches, HaveNoneBefore) {
  const auto lion = [](size_t count) {
    return launches_of(std::vector<int64_t>(count, 5), "lion_", 3, false, {0.01, 0.9, 0.99, 0.1});
  };
  EXPECT_EQ(lion(86).size(), 1u);
  EXPECT_EQ(lion(87).size(), 2u);
  EXPECT_EQ(lion(0).size(), 0u);
}

}  // namespace
}  // namespace opdock_test::adam_plugin
