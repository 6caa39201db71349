// SPDX-License-Identifier: Apache-2.0
#include "row_cases.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace opdock_test {

std::vector<int64_t> row_lengths() {
  std::vector<int64_t> lengths = {127, 128, 129, 4096, 14432};
  for (int64_t length = 1; length <= 70; ++length) lengths.push_back(length);
  return lengths;
}

std::vector<int64_t> launch_lengths() {
  return {1,    31,   32,   33,   255,  256,   257,   264,   512,   520,   1000,  1024,
          2048, 4096, 4104, 8192, 8200, 14432, 16384, 16392, 32768, 32776, 65536, 65537};
}

std::vector<std::vector<int64_t>> batch_shapes() {
  return {{5}, {1, 1, 5}, {2, 3, 33}, {2, 1, 3, 2, 17}};
}

std::vector<std::vector<int64_t>> empty_shapes() {
  return {{0}, {0, 5}, {5, 0}, {2, 0, 3}};
}

void expect_close(const Array& out, const std::vector<Wanted>& wanted, double computed,
                  double absolute, const std::string& what) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    const Wanted& want = wanted[static_cast<size_t>(i)];
    const double found = out.get(i);
    if (std::isnan(want.value)) {
      ASSERT_TRUE(std::isnan(found)) << what << " element " << i << " is " << found;
      continue;
    }
    const double rounding = half_ulp(out.type()) * (1 + 1e-3) * std::fabs(want.value);
    ASSERT_NEAR(found, want.value, rounding + computed * want.scale + absolute)
        << what << " element " << i;
  }
}

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const auto& [result, argument, found] : refusals) {
    EXPECT_NE(result.status, OPDOCK_OK) << argument << " " << found;
    EXPECT_NE(result.status, OPDOCK_INTERNAL) << result.text;
    EXPECT_NE(result.text.find(argument), std::string::npos) << result.text;
    EXPECT_NE(result.text.find(found), std::string::npos) << result.text;
    EXPECT_NE(result.text.find("wanted"), std::string::npos) << result.text;
  }
}

namespace {

std::string declaration(const std::string& plugin) {
  std::ifstream stream(std::string(OPDOCK_SOURCE_PLUGINS) + "/" + plugin + "/plugin.toml");
  return {std::istreambuf_iterator<char>(stream), {}};
}

int64_t bytes_of(Type type) {
  return type == Type::kFloat32 ? 4 : 2;
}

}  // namespace

void expect_covers(const Launch& launch, const std::string& plugin, Type type, int64_t length,
                   int64_t rows, int64_t warp, bool misaligned) {
  const std::string what = launch.kernel + " for length " + std::to_string(length);
  EXPECT_NE(declaration(plugin).find("\"" + launch.kernel + "\""), std::string::npos) << what;
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
  EXPECT_FALSE(misaligned) << "16-byte loads: " << what;
  const int64_t items = std::atoi(launch.kernel.c_str() + comma + 2);
  EXPECT_GE(threads * items * (16 / bytes_of(type)), length) << what;
  EXPECT_EQ(length * bytes_of(type) % 16, 0) << what;
}

}  // namespace opdock_test
