// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

namespace opdock_test::cross_entropy_plugin {
namespace {

Result record(int64_t rows, bool with_gradient, Type type, int64_t length, uint32_t warp, int odd,
              std::vector<Launch>* launches) {
  const Op op("cross_entropy", with_gradient ? "cross_entropy_with_gradient" : "cross_entropy");
  Array logits(type, {rows, length}, {length, 1}, odd), gradient(type, {rows, length});
  Array target(Type::kInt32, {rows}), loss(Type::kFloat32, {rows});
  std::vector<opdock_value> args = {logits.value(), target.value(), integer(-100), number(0),
                                    none()};
  if (!with_gradient) return op.record(args, {&loss}, warp, launches);
  args.insert(args.begin() + 2, none());
  return op.record(args, {&loss, &gradient}, warp, launches);
}

TEST(CrossEntropyLaunches, CoverEveryRow) {
  for (bool with_gradient : {false, true}) {
    auto run = [&](Type type, int64_t length, uint32_t warp, int odd,
                   std::vector<Launch>* launches) {
      return record(5, with_gradient, type, length, warp, odd, launches);
    };
    expect_every_launch_covers("cross_entropy", 2, run);
  }
}

// A row of 262144 classes is read once, because its cluster holds it.
TEST(CrossEntropyLaunches, HoldTheLargestVocabularies) {
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (int64_t length : {int64_t{128256}, int64_t{262144}}) {
      std::vector<Launch> launches;
      ASSERT_EQ(record(2, true, type, length, 32, 0, &launches).status, OPDOCK_OK);
      ASSERT_EQ(launches.size(), 1u);
      EXPECT_NE(launches[0].kernel.find("block_rows"), std::string::npos) << launches[0].kernel;
      expect_covers(launches[0], "cross_entropy", type, length, 2, 32, false);
    }
}

TEST(CrossEntropyLaunches, NothingForEmptyTensors) {
  std::vector<Launch> launches;
  EXPECT_EQ(record(0, true, Type::kFloat32, 8, 32, 0, &launches).status, OPDOCK_OK);
  EXPECT_TRUE(launches.empty());
}

}  // namespace
}  // namespace opdock_test::cross_entropy_plugin
