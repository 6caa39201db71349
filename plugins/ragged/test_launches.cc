// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

namespace opdock_test::ragged_plugin {
namespace {

// Returns the launch of attention for so many tokens in so many atoms, eight heads of keys.
Launch launch_of(Type type, int64_t tokens, int64_t atoms, int64_t group, int64_t size,
                 RecordedGpu gpu = {}) {
  const int64_t columns = 8 * group * size;
  Array out(type, {tokens, columns}), q(type, {tokens, columns});
  Array k(type, {2, 16, 8, size}), v(type, {2, 16, 8, size});
  Array of(Type::kInt32, {atoms, 8});
  std::vector<Launch> launches;
  const Result result = Op("ragged", "attention_by_atoms")
                            .record({out.value(), q.value(), k.value(), v.value(), of.value(),
                                     none(), none(), boolean(true)},
                                    {}, gpu, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  EXPECT_EQ(launches.size(), 1u);
  return launches.empty() ? Launch{} : launches[0];
}

void expect(const Launch& launch, const std::string& kernel, uint32_t blocks) {
  EXPECT_EQ(launch.kernel, "ragged::" + kernel);
  EXPECT_EQ(launch.how.grid[0], blocks);
}

TEST(RaggedLaunches, DecodedTokensHaveABlockForEachHeadOfKeys) {
  expect(launch_of(Type::kBFloat16, 64, 64, 4, 128), "attend<opdock::bfloat16, 128>", 64 * 8);
  expect(launch_of(Type::kFloat16, 64, 64, 16, 64), "attend<opdock::half, 128>", 64 * 8 * 2);
}

TEST(RaggedLaunches, PromptsUseTensorCores) {
  expect(launch_of(Type::kFloat16, 256, 2, 1, 136), "attend_tiles<opdock::half, 256>", 2 * 8 * 2);
  expect(launch_of(Type::kBFloat16, 40, 2, 1, 128), "attend_tiles<opdock::bfloat16, 128>", 2 * 8);
  expect(launch_of(Type::kFloat32, 256, 2, 1, 128), "attend<float, 128>", 2 * 8 * 16);
  RecordedGpu old;
  old.arch_major = 7;
  expect(launch_of(Type::kFloat16, 256, 2, 1, 128, old), "attend<opdock::half, 128>", 2 * 8 * 16);
  RecordedGpu amd;
  amd.type = OPDOCK_ROCM;
  amd.warp_size = 64;
  expect(launch_of(Type::kFloat16, 256, 2, 1, 128, amd), "attend<opdock::half, 128>", 2 * 8 * 16);
}

}  // namespace
}  // namespace opdock_test::ragged_plugin
