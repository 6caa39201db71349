// Tests which kernels products with int8 weights launch, and that the kernels cover the whole
// result.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "harness.h"

namespace opdock_test::linear_plugin {
namespace {

constexpr int64_t kOutputs = 100, kInputs = 64;

struct Launched {
  std::vector<Launch> launches;
  uint64_t workspace_bytes;
};

// gap: elements between the weight's rows; larger: factor of the size in both directions.
Launched launches_of(Type type, int64_t rows, bool transposed, uint32_t warp, int64_t gap = 0,
                     int64_t larger = 1) {
  RecordedGpu gpu;
  gpu.warp_size = warp;
  if (warp == 64) gpu.type = OPDOCK_ROCM;
  static const Op linear("linear", "linear");
  const opdock_string none_text = {"none", 4};
  const int64_t outputs = kOutputs * larger, inputs = kInputs * larger;
  Array x(type, {rows, inputs}), out(type, {rows, outputs}), scale(Type::kFloat32, {1});
  const int64_t down = transposed ? outputs : inputs, across = transposed ? inputs : outputs;
  Array weight(Type::kInt8, {down, across}, {across + gap, 1});
  Launched found = {};
  const Result result = linear.record({x.value(), weight.value(), none(), none(), scale.value(),
                                       text_value(&none_text), boolean(transposed)},
                                      {&out}, gpu, &found.launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  found.workspace_bytes = result.workspace_bytes;
  return found;
}

Launch launch_of(Type type, int64_t rows, bool transposed, uint32_t warp) {
  const Launched found = launches_of(type, rows, transposed, warp);
  EXPECT_EQ(found.launches.size(), 1u);
  return found.launches.empty() ? Launch{} : found.launches[0];
}

// Returns whether tensor cores compute the product: two or more rows of 16 bits, on NVIDIA's GPUs.
bool on_matrices(Type type, int64_t rows, uint32_t warp) {
  return type != Type::kFloat32 && rows > 1 && warp == 32;
}

TEST(LinearLaunches, FewRowsReadEachWeightOnceForEightOfThem) {
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const uint32_t warp : {32u, 64u})
      for (const int64_t rows : {1, 2, 4, 5, 8, 9, 32}) {
        if (on_matrices(type, rows, warp)) continue;
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

TEST(LinearLaunches, TensorCoresReadASmallWeightAgainForEvery32Rows) {
  for (const Type type : {Type::kFloat16, Type::kBFloat16})
    for (const auto& [rows, each] :
         {std::pair<int64_t, int64_t>{2, 8}, {8, 8}, {9, 32}, {32, 32}, {33, 32}, {20000, 32}}) {
      const Launch launch = launch_of(type, rows, true, 32);
      EXPECT_TRUE(launch.kernel.starts_with("linear::int8_few<"))
          << rows << " rows: " << launch.kernel;
      EXPECT_TRUE(launch.kernel.ends_with(", " + std::to_string(each) + ">")) << launch.kernel;
      EXPECT_EQ(launch.how.block[0], 256u);
      EXPECT_EQ(launch.how.grid[0], (kOutputs + 15) / 16);
      EXPECT_EQ(launch.how.grid[1], (rows + each - 1) / each);
    }
}

// The weight has 8.3 million elements.
TEST(LinearLaunches, TensorCoresReadALargeWeightTwiceAtMost) {
  for (const Type type : {Type::kFloat16, Type::kBFloat16}) {
    for (const int64_t rows : {32, 33, 64}) {
      const Launched found = launches_of(type, rows, true, 32, 0, 36);
      ASSERT_EQ(found.launches.size(), 1u) << rows << " rows";
      EXPECT_TRUE(found.launches[0].kernel.starts_with("linear::int8_few<"));
    }
    const Launched found = launches_of(type, 65, true, 32, 0, 36);
    ASSERT_EQ(found.launches.size(), 2u);
    EXPECT_TRUE(found.launches[0].kernel.starts_with("dequantize::dequantize<"));
    EXPECT_GE(found.workspace_bytes, 36u * 36 * kOutputs * kInputs * 2);
  }
}

TEST(LinearLaunches, ManyRowsAndOtherLayoutsMultiplyACopyOfTheWeight) {
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const auto& [rows, transposed] : {std::pair{33, true}, {1000, true}, {1, false}}) {
      const Launched found = launches_of(type, rows, transposed, transposed ? 64 : 32);
      ASSERT_EQ(found.launches.size(), 2u);
      EXPECT_TRUE(found.launches[0].kernel.starts_with("dequantize::dequantize<"));
      EXPECT_EQ(found.launches[1].kernel.substr(0, 13), "opdock.gemm/1");
      // 6400 elements; 256 threads with four vectors of 16 bytes each.
      EXPECT_EQ(found.launches[0].how.grid[0], type == Type::kFloat32 ? 2u : 1u);
      const uint64_t copy = kOutputs * kInputs * (type == Type::kFloat32 ? 4 : 2);
      EXPECT_GE(found.workspace_bytes, copy);
    }
}

TEST(LinearLaunches, AWeightWithGapsTakesTiles) {
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const auto& [rows, transposed] :
         {std::pair{33, true}, {64, true}, {65, true}, {1000, true}, {1, false}, {64, false}}) {
      const Launched found = launches_of(type, rows, transposed, transposed ? 64 : 32, 3);
      ASSERT_EQ(found.launches.size(), 1u);
      const Launch& launch = found.launches[0];
      EXPECT_TRUE(launch.kernel.starts_with("linear::int8_tiles<")) << launch.kernel;
      EXPECT_EQ(launch.how.grid[0], (rows + 63) / 64 * ((kOutputs + 63) / 64));
      EXPECT_EQ(launch.how.grid[1], 1u);
      EXPECT_EQ(found.workspace_bytes, 0u);
    }
}

// Warps share an output until a lane has four vectors of 16 bytes; with 4096 outputs each warp has
// two.
TEST(LinearLaunches, OneRowIsMultipliedByAKernelThatReadsEachWeightOnce) {
  static const Op linear("linear", "linear");
  const opdock_string none_text = {"none", 4};
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (const uint32_t warp : {32u, 64u})
      for (const auto& [outputs, vectors, team] :
           {std::tuple{100, 1, 1}, {100, 4, 1}, {100, 5, 2}, {100, 9, 4}, {4096, 4, 1}}) {
        RecordedGpu gpu;
        gpu.warp_size = warp;
        if (warp == 64) gpu.type = OPDOCK_ROCM;
        const int64_t size = type == Type::kFloat32 ? 4 : 8, inputs = vectors * warp * size;
        Array x(type, {1, 1, inputs}), weight(type, {outputs, inputs}), out(type, {1, 1, outputs});
        std::vector<Launch> launches;
        const Result result = linear.record({x.value(), weight.value(), none(), none(), none(),
                                             text_value(&none_text), boolean(true)},
                                            {&out}, gpu, &launches);
        ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
        ASSERT_EQ(launches.size(), 1u);
        EXPECT_TRUE(launches[0].kernel.starts_with("linear::one_row<")) << launches[0].kernel;
        const int64_t each = outputs == 4096 ? 2 : 1, of_block = 256 / warp / team * each;
        EXPECT_TRUE(launches[0].kernel.ends_with(", " + std::to_string(each) + ">"));
        EXPECT_EQ(launches[0].how.block[0], 256u);
        EXPECT_EQ(launches[0].how.grid[0], (outputs + of_block - 1) / of_block);
        EXPECT_EQ(result.workspace_bytes, 0u);
      }
}

TEST(LinearLaunches, OtherProductsAreTheLibrarys) {
  static const Op linear("linear", "linear");
  for (const auto& [rows, inputs, transposed] :
       {std::tuple{2, 64, true}, {1, 64, false}, {3, 0, true}}) {
    Array x(Type::kFloat16, {rows, inputs}), out(Type::kFloat16, {rows, 8});
    Array weight(Type::kFloat16,
                 transposed ? std::vector<int64_t>{8, inputs} : std::vector<int64_t>{inputs, 8});
    std::vector<Launch> launches;
    const opdock_string none_text = {"none", 4};
    const Result result = linear.record({x.value(), weight.value(), none(), none(), none(),
                                         text_value(&none_text), boolean(transposed)},
                                        {&out}, 32, &launches);
    ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].kernel.substr(0, 13), "opdock.gemm/1");
  }
}

// The host computes the products, between launches of the plugin's own kernels.
TEST(LinearLaunches, AnMlpIsASumANormAndTwoProductsAroundAGate) {
  const Op norm_mlp("linear", "norm_mlp");
  const opdock_string rms = {"rms", 3}, layer = {"layer", 5}, silu = {"silu", 4};
  Array x(Type::kFloat16, {4, 64}), first(Type::kFloat16, {32, 64}), last(Type::kFloat16, {64, 16});
  Array out(Type::kFloat16, {4, 64}), normed(Type::kFloat16, {4, 64}), sum(Type::kFloat16, {4, 64});
  Array input_bias(Type::kFloat16, {64});
  for (const bool biased : {false, true}) {
    std::vector<Launch> launches;
    const Result result =
        norm_mlp.record({x.value(), first.value(), last.value(), none(), none(), x.value(),
                         biased ? input_bias.value() : none(), none(), none(), none(), none(),
                         text_value(biased ? &layer : &rms), number(1e-5), text_value(&silu),
                         boolean(true), boolean(false), boolean(true)},
                        {&out, &normed, &sum}, 32, &launches);
    ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
    std::vector<std::string> kernels;
    for (const Launch& launch : launches)
      kernels.push_back(launch.kernel.substr(0, launch.kernel.find('<')));
    const char* const norm =
        biased ? "layernorm::add_bias::narrow_rows" : "layernorm::add::narrow_rows";
    EXPECT_EQ(kernels,
              (std::vector<std::string>{norm, "opdock.gemm/1", "linear::gate", "opdock.gemm/1"}));
    // The data between the products, and behind it the products' own workspace.
    EXPECT_EQ(result.workspace_bytes, 4u * 32 * 2 + 768);
  }
}

}  // namespace
}  // namespace opdock_test::linear_plugin
