// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

namespace opdock_test::rope_plugin {
namespace {

// Returns the launch for heads of `size` elements, of which `turned` are rotated. odd: which
// argument is misaligned: 1 for q, 2 for k, 3 for cos; 0 for none.
Launch launch_of(Type type, int64_t tokens, int64_t queries, int64_t keys, int64_t size,
                 int64_t turned, int odd = 0, bool in_place = false) {
  const std::vector<int64_t> q_strides = {queries * size, size, 1},
                             k_strides = {keys * size, size, 1};
  Array q(type, {tokens, queries, size}, q_strides, odd == 1);
  Array k(type, {tokens, keys, size}, k_strides, odd == 2);
  Array cos(Type::kFloat32, {tokens, turned / 2}, {turned / 2, 1}, odd == 3);
  Array sin(Type::kFloat32, {tokens, turned / 2});
  Array out_q(type, {tokens, queries, size}), out_k(type, {tokens, keys, size});
  std::vector<Launch> launches;
  const std::vector<Array*> outputs = {in_place ? &q : &out_q, in_place ? &k : &out_k};
  const Result result =
      Op("rope", "rope")
          .record({q.value(), k.value(), cos.value(), sin.value(), none(), boolean(false)}, outputs,
                  32, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  EXPECT_EQ(launches.size(), 1u);
  return launches.empty() ? Launch{} : launches[0];
}

void expect_shape(const Launch& launch, std::vector<uint32_t> grid, std::vector<uint32_t> block) {
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(launch.how.grid[i], grid[i]) << "dimension " << i << " of the grid";
    EXPECT_EQ(launch.how.block[i], block[i]) << "dimension " << i << " of a block";
  }
}

// A block's dimensions are pieces of a head, groups of four heads, and tokens.
TEST(RopeLaunches, HaveAThreadForTwoPiecesOfFourHeads) {
  const Launch launch = launch_of(Type::kBFloat16, 1000, 32, 8, 128, 128);
  expect_shape(launch, {334, 1, 1}, {8, 10, 3});
  EXPECT_EQ(launch.kernel, "rope::rotate<opdock::bfloat16, 4>");
  expect_shape(launch_of(Type::kBFloat16, 1000, 32, 32, 128, 128), {500, 1, 1}, {8, 16, 2});
  expect_shape(launch_of(Type::kFloat32, 1000, 32, 8, 128, 128), {1000, 1, 1}, {16, 10, 1});
  expect_shape(launch_of(Type::kFloat16, 10000, 3, 1, 64, 64), {313, 1, 1}, {4, 2, 32});
}

TEST(RopeLaunches, HaveAThreadForEachHeadWhereTheyAreFew) {
  const Launch launch = launch_of(Type::kBFloat16, 100, 32, 8, 128, 128);
  expect_shape(launch, {500, 1, 1}, {8, 8, 1});
  EXPECT_EQ(launch.kernel, "rope::rotate<opdock::bfloat16, 1>");
  EXPECT_EQ(launch.how.flags, OPDOCK_LAUNCH_PROGRAMMATIC);
  // Blocks may be large if there are enough of them for all multiprocessors.
  expect_shape(launch_of(Type::kBFloat16, 200, 32, 8, 128, 128), {400, 1, 1}, {8, 20, 1});
  expect_shape(launch_of(Type::kFloat16, 1, 3, 1, 64, 64), {1, 1, 1}, {4, 4, 1});
  // Many tokens with few heads.
  expect_shape(launch_of(Type::kFloat16, 20000, 1, 1, 64, 64), {625, 1, 1}, {4, 2, 32});
  const Launch many = launch_of(Type::kFloat16, 200000, 1, 0, 16, 16);
  expect_shape(many, {3125, 1, 1}, {1, 1, 64});
  EXPECT_EQ(many.how.flags, 0u);
}

TEST(RopeLaunches, SpreadManyHeadsEvenly) {
  expect_shape(launch_of(Type::kBFloat16, 100, 256, 8, 128, 128), {300, 1, 1}, {8, 22, 1});
  expect_shape(launch_of(Type::kFloat32, 100, 1, 1, 4104, 4104), {200, 1, 3}, {171, 1, 1});
}

TEST(RopeLaunches, CopyTheRestOfAHeadOnlyIfItIsNotInPlace) {
  expect_shape(launch_of(Type::kFloat16, 100, 32, 32, 80, 32), {600, 1, 1}, {5, 11, 1});
  expect_shape(launch_of(Type::kFloat16, 100, 32, 32, 80, 32, 0, true), {200, 1, 1}, {2, 32, 1});
}

TEST(RopeLaunches, GoByElementsWhereAnythingIsMisaligned) {
  for (int odd : {1, 2, 3})
    expect_shape(launch_of(Type::kFloat16, 100, 3, 1, 64, 64, odd), {200, 1, 1}, {32, 2, 1});
  // Half of the rotated elements is not made of whole pieces; then the copied elements are not.
  expect_shape(launch_of(Type::kFloat16, 100, 2, 2, 64, 56), {200, 1, 1}, {32, 2, 1});
  expect_shape(launch_of(Type::kFloat16, 100, 2, 2, 36, 32), {200, 1, 1}, {18, 2, 1});
  // A tensor without heads does not count.
  expect_shape(launch_of(Type::kFloat16, 100, 4, 0, 64, 64, 2), {25, 1, 1}, {4, 4, 4});
}

TEST(RopeLaunches, StridesOfOneTokenOrHeadDoNotCount) {
  Array q(Type::kFloat16, {1, 3, 64}, {1001, 64, 1}), k(Type::kFloat16, {1, 1, 64}, {777, 99, 1});
  Array cos(Type::kFloat32, {1, 32}), out_q(Type::kFloat16, {1, 3, 64});
  Array out_k(Type::kFloat16, {1, 1, 64});
  std::vector<Launch> launches;
  const Result result =
      Op("rope", "rope")
          .record({q.value(), k.value(), cos.value(), cos.value(), none(), boolean(false)},
                  {&out_q, &out_k}, 32, &launches);
  ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
  ASSERT_EQ(launches.size(), 1u);
  expect_shape(launches[0], {1, 1, 1}, {4, 4, 1});
}

TEST(RopeLaunches, RefusesStridesThatTheKernelCannotMultiplyBy) {
  // q is not accessed, because the launch is not made.
  Array q(Type::kFloat16, {2, 1, 16}), cos(Type::kFloat32, {2, 8}),
      out_q(Type::kFloat16, {2, 1, 16});
  Array k(Type::kFloat16, {2, 0, 16}), out_k(Type::kFloat16, {2, 0, 16});
  opdock_tensor far = *q.value().as.tensor;
  int64_t strides[] = {int64_t{1} << 31, 16, 1};
  far.strides = strides;
  opdock_value value = q.value();
  value.as.tensor = &far;
  std::vector<Launch> launches;
  const Result result =
      Op("rope", "rope")
          .record({value, k.value(), cos.value(), cos.value(), none(), boolean(false)},
                  {&out_q, &out_k}, 32, &launches);
  EXPECT_EQ(result.status, OPDOCK_UNSUPPORTED);
  EXPECT_NE(result.text.find("found a stride of 2147483648 elements"), std::string::npos)
      << result.text;
  EXPECT_TRUE(launches.empty());
}

TEST(RopeLaunches, NothingWithoutElements) {
  const Op rope("rope", "rope");
  Array cos(Type::kFloat32, {3, 0}), none_left(Type::kFloat32, {3, 0, 8});
  Array q(Type::kFloat32, {3, 2, 8});
  std::vector<Launch> launches;
  const auto record = [&](Array& x, Array& out) {
    return rope.record(
        {x.value(), none_left.value(), cos.value(), cos.value(), none(), boolean(true)},
        {&out, &none_left}, 32, &launches);
  };
  EXPECT_EQ(record(none_left, none_left).status, OPDOCK_OK);
  EXPECT_EQ(record(q, q).status, OPDOCK_OK) << "of which nothing is rotated, in place";
  EXPECT_TRUE(launches.empty());
}

}  // namespace
}  // namespace opdock_test::rope_plugin
