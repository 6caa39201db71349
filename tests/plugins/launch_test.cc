// Which kernels the plugins launch, and how: without a GPU, by recording what they ask for.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "harness.h"

namespace opdock_test {
namespace {

std::string declaration(const std::string& plugin) {
  std::ifstream stream(std::string(OPDOCK_SOURCE_PLUGINS) + "/" + plugin + "/plugin.toml");
  return {std::istreambuf_iterator<char>(stream), {}};
}

int64_t bytes_of(Type type) {
  return type == Type::kFloat32 ? 4 : 2;
}

// The launch covers rows of `length`: a declared kernel, whole warps, no more threads than the
// kernel was compiled for, and room for every element in the kernels that keep a row in registers.
void expect_covers(const Launch& launch, const std::string& toml, Type type, int64_t length,
                   int64_t rows, int64_t warp) {
  const std::string what = launch.kernel + " for length " + std::to_string(length);
  EXPECT_NE(toml.find("\"" + launch.kernel + "\""), std::string::npos) << what;
  const int64_t threads = launch.how.block[0];
  EXPECT_EQ(threads % warp, 0) << what;
  EXPECT_GE(threads, warp) << what;
  EXPECT_EQ(launch.how.block[1] * launch.how.block[2], 1u);
  EXPECT_EQ(launch.how.grid[1] * launch.how.grid[2], 1u);
  EXPECT_EQ(launch.how.num_args, 1u);
  if (launch.kernel.find("short_rows") != std::string::npos) {
    EXPECT_LE(threads, 128) << what;
    EXPECT_LE(length, 8 * warp) << what;
    EXPECT_GE(launch.how.grid[0] * (threads / warp), rows) << what;
    return;
  }
  EXPECT_LE(threads, 1024) << what;
  EXPECT_EQ(launch.how.grid[0], rows) << what;
  const size_t comma = launch.kernel.find(", ");
  if (comma == std::string::npos) return;
  const int64_t items = std::atoi(launch.kernel.c_str() + comma + 2);
  EXPECT_GE(threads * items * (16 / bytes_of(type)), length) << what;
  EXPECT_EQ(length * bytes_of(type) % 16, 0) << what;
}

const std::vector<int64_t> kLengths = {1,    31,    32,    33,    255,   256,   257,   264,
                                       512,  520,   1000,  1024,  2048,  4096,  4104,  8192,
                                       8200, 14432, 16384, 16392, 32768, 32776, 65536, 65537};

TEST(Launches, SoftmaxCoversEveryRow) {
  const Op op("softmax", "softmax");
  const std::string toml = declaration("softmax");
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (int64_t length : kLengths)
      for (uint32_t warp : {32u, 64u})
        for (int64_t offset : {0, 1}) {
          Array x(type, {5, length}, {length, 1}, offset), out(type, {5, length});
          std::vector<Launch> launches;
          const Result result =
              op.record({x.value(), number(1), none(), boolean(false)}, {&out}, warp, &launches);
          ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
          ASSERT_EQ(launches.size(), 1u);
          expect_covers(launches[0], toml, type, length, 5, warp);
          if (offset == 1) {
            EXPECT_EQ(launches[0].kernel.find("vector_rows"), std::string::npos)
                << "16-byte loads of misaligned rows";
          }
        }
}

TEST(Launches, NormCoversEveryRow) {
  const Op op("norm", "add_layer_norm");
  const std::string toml = declaration("norm");
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (int64_t length : kLengths)
      for (uint32_t warp : {32u, 64u})
        for (int odd = 0; odd < 4; ++odd) {  // which argument is misaligned; 0: none
          Array x(type, {5, length}), residual(type, {5, length}, {length, 1}, odd == 1);
          Array weight(type, {length}, {1}, odd == 2), bias(type, {length}, {1}, odd == 3);
          Array out(type, {5, length}), sum(type, {5, length});
          std::vector<Launch> launches;
          const Result result =
              op.record({x.value(), residual.value(), weight.value(), bias.value(), number(1e-5)},
                        {&out, &sum}, warp, &launches);
          ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
          ASSERT_EQ(launches.size(), 1u);
          expect_covers(launches[0], toml, type, length, 5, warp);
          if (odd) {
            EXPECT_EQ(launches[0].kernel.find("vector_rows"), std::string::npos)
                << "16-byte loads of misaligned argument " << odd;
          }
        }
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
