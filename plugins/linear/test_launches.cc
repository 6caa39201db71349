// Which kernels products with int8 weights launch, and that these reach all of the result.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "harness.h"

namespace opdock_test::linear_plugin {
namespace {

constexpr int64_t kOutputs = 100, kInputs = 64;

Launch launch_of(Type type, int64_t rows, bool transposed, uint32_t warp) {
  static const Op linear("linear", "linear");
  const opdock_string none_text = {"none", 4};
  Array x(type, {rows, kInputs}), out(type, {rows, kOutputs}), scale(Type::kFloat32, {1});
  Array weight(Type::kInt8, transposed ? std::vector<int64_t>{kOutputs, kInputs}
                                       : std::vector<int64_t>{kInputs, kOutputs});
  std::vector<Launch> launches;
  const Result result = linear.record({x.value(), weight.value(), none(), none(), scale.value(),
                                       text_value(&none_text), boolean(transposed)},
                                      {&out}, warp, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  EXPECT_EQ(result.workspace_bytes, 0u) << "no copy of the weight";
  EXPECT_EQ(launches.size(), 1u);
  return launches.empty() ? Launch{} : launches[0];
}

TEST(LinearLaunches, FewRowsReadEachWeightOnceForEightOfThem) {
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const uint32_t warp : {32u, 64u})
      for (const int64_t rows : {1, 2, 4, 5, 8, 9, 32}) {
        const Launch launch = launch_of(type, rows, true, warp);
        const int64_t each = rows == 1 ? 1 : rows <= 4 ? 4 : 8;
        EXPECT_TRUE(launch.kernel.starts_with("linear::int8_rows<")) << launch.kernel;
        EXPECT_TRUE(launch.kernel.ends_with(", " + std::to_string(each) + ">")) << launch.kernel;
        EXPECT_EQ(launch.how.block[0], 256u);
        EXPECT_GE(launch.how.grid[0] * (256 / warp), kOutputs);
        EXPECT_GE(launch.how.grid[1] * each, rows);
        EXPECT_LT((launch.how.grid[1] - 1) * each, rows);
      }
}

TEST(LinearLaunches, MoreRowsAndOtherLayoutsTakeTiles) {
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const auto& [rows, transposed] :
         {std::pair{33, true}, {64, true}, {65, true}, {1000, true}, {1, false}, {64, false}}) {
      const Launch launch = launch_of(type, rows, transposed, 32);
      EXPECT_TRUE(launch.kernel.starts_with("linear::int8_tiles<")) << launch.kernel;
      EXPECT_EQ(launch.how.grid[0], (rows + 63) / 64 * ((kOutputs + 63) / 64));
      EXPECT_EQ(launch.how.grid[1], 1u);
    }
}

// A product by the host, between launches of the plugin's own.
TEST(LinearLaunches, AnMlpIsASumANormAndTwoProductsAroundAGate) {
  const Op norm_mlp("linear", "norm_mlp");
  const opdock_string rms = {"rms", 3}, silu = {"silu", 4};
  Array x(Type::kFloat16, {4, 64}), first(Type::kFloat16, {32, 64}), last(Type::kFloat16, {64, 16});
  Array out(Type::kFloat16, {4, 64}), normed(Type::kFloat16, {4, 64}), sum(Type::kFloat16, {4, 64});
  std::vector<Launch> launches;
  const Result result =
      norm_mlp.record({x.value(), first.value(), last.value(), none(), none(), x.value(), none(),
                       none(), none(), none(), none(), text_value(&rms), number(1e-5),
                       text_value(&silu), boolean(true), boolean(false), boolean(true)},
                      {&out, &normed, &sum}, 32, &launches);
  ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
  std::vector<std::string> kernels;
  for (const Launch& launch : launches)
    kernels.push_back(launch.kernel.substr(0, launch.kernel.find('<')));
  EXPECT_EQ(kernels, (std::vector<std::string>{"linear::add", "layernorm::narrow_rows",
                                               "opdock.gemm/1", "linear::gate", "opdock.gemm/1"}));
  // What is between the products, and the products' own part behind it.
  EXPECT_EQ(result.workspace_bytes, 4u * 32 * 2 + 768);
}

}  // namespace
}  // namespace opdock_test::linear_plugin
