// Runs the plugins' kernels on the engine with 32- and 64-wide warps, and compares the results with
// plain loops in double.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "../../../plugins/norm/device/norm_params.cuh"
#include "../../../plugins/softmax/device/softmax_params.cuh"
#include "test_support.h"

namespace softgpu {
namespace {

class Ops : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Widths, Ops, testing::Values(32, 64));

std::vector<float> numbers(size_t count, unsigned seed) {
  std::vector<float> out(count);
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : out) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 16777216.0f * 8 - 4;
  }
  return out;
}

// Converts a binary16 pattern through a table of all patterns, since whole rows are compared.
double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double size = exponent == 0    ? std::ldexp(fraction, -24)
                      : exponent == 31 ? std::numeric_limits<double>::infinity()
                                       : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

uint16_t nearest_half(double value) {
  uint16_t best = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;
    if (std::abs(half_value(static_cast<uint16_t>(bits)) - value) <
        std::abs(half_value(best) - value))
      best = static_cast<uint16_t>(bits);
  }
  return best;
}

opdock::Rows<3> plain_rows(long long count, long long length) {
  opdock::Rows<3> rows{};
  rows.count = count;
  rows.ndim = 1;
  rows.size[0] = count;
  for (auto& stride : rows.stride) stride[0] = length;
  return rows;
}

std::vector<double> softmax_rows(const std::vector<double>& x, size_t length) {
  std::vector<double> out(x.size());
  for (size_t r = 0; r < x.size(); r += length) {
    const double most = *std::max_element(&x[r], &x[r] + length);
    double sum = 0;
    for (size_t i = 0; i < length; ++i) sum += std::exp(x[r + i] - most);
    for (size_t i = 0; i < length; ++i) out[r + i] = std::exp(x[r + i] - most) / sum;
  }
  return out;
}

TEST_P(Ops, SoftmaxOfFloat) {
  const std::vector<Kernel> kernels = make_kernels(
      "#include \"softmax.cuh\"\n",
      {"softmax::narrow_rows<float, 2, 1>", "softmax::block_rows<float, 2, 0>",
       "softmax::long_rows<float>"},
      GetParam(),
      {"plugins/softmax/device/softmax.cuh", "plugins/softmax/device/softmax_params.cuh"});
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0].name, "_ZN7softmax11narrow_rowsIfLi2ELi1EEEvNS_6ParamsE");
  for (const Kernel& kernel : kernels) {
    const bool whole = kernel.expression == "softmax::block_rows<float, 2, 0>";
    const bool narrow = kernel.expression == "softmax::narrow_rows<float, 2, 1>";
    const long long rows = 7, length = whole ? 256 : narrow ? 117 : 137;
    const std::vector<float> x = numbers(static_cast<size_t>(rows * length), 3);
    const DeviceArray<float> in(x), out(x.size());
    softmax::Params params{};
    params.x = in.data();
    params.out = out.data();
    params.length = length;
    params.queries = 1;
    params.scale = 1;
    params.is_plain = 1;
    params.shape.lane_bits = 4;
    params.rows = plain_rows(rows, length);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      configure({.seed = seed, .workers = 2, .counters = false, .steps = kSteps});
      EXPECT_EQ(finding_of(launch_of(kernel, narrow ? 1 : 7, 128, params)), "");
    }
    const std::vector<double> wanted =
        softmax_rows({x.begin(), x.end()}, static_cast<size_t>(length));
    const std::vector<float> got = out.get();
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-6) << i;
  }
}

TEST_P(Ops, SoftmaxOfHalfInPlace) {
  const std::vector<Kernel> kernels = make_kernels(
      "#include \"softmax.cuh\"\n", {"softmax::block_rows<opdock::half, 2, 0>"}, GetParam(),
      {"plugins/softmax/device/softmax.cuh", "plugins/softmax/device/softmax_params.cuh"});
  ASSERT_EQ(kernels.size(), 1u);
  const long long rows = 3, length = 1024;
  std::vector<uint16_t> x;
  std::vector<double> exact;
  for (float value : numbers(16, 9)) x.push_back(nearest_half(value));
  while (x.size() < static_cast<size_t>(rows * length)) x.push_back(x[x.size() * 7 % 16]);
  for (uint16_t bits : x) exact.push_back(half_value(bits));
  const DeviceArray<uint16_t> data(x);
  softmax::Params params{};
  params.x = data.data();
  params.out = data.data();
  params.length = length;
  params.queries = 1;
  params.scale = 1;
  params.is_plain = 1;
  params.rows = plain_rows(rows, length);
  EXPECT_EQ(finding_of(launch_of(kernels[0], 3, 128, params)), "");
  const std::vector<double> wanted = softmax_rows(exact, static_cast<size_t>(length));
  const std::vector<uint16_t> got = data.get();
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(half_value(got[i]), wanted[i], wanted[i] / 1000 + 6e-8) << i;
}

TEST_P(Ops, LayerNormOfFloat) {
  const std::vector<Kernel> kernels =
      make_kernels("#include \"norm.cuh\"\n",
                   {"layernorm::add::narrow_rows<float, 2, 0>",
                    "layernorm::add::block_rows<float, 2, 0>", "layernorm::add::long_rows<float>"},
                   GetParam(),
                   {"plugins/norm/device/norm.cuh", "plugins/norm/device/moments.cuh",
                    "plugins/norm/device/norm_params.cuh"});
  ASSERT_EQ(kernels.size(), 3u);
  for (const Kernel& kernel : kernels) {
    const bool narrow = kernel.expression == "layernorm::add::narrow_rows<float, 2, 0>";
    const size_t rows = 5, length = narrow ? 128 : 256;
    const std::vector<float> x = numbers(rows * length, 1), residual = numbers(rows * length, 2),
                             weight = numbers(length, 5), bias = numbers(length, 6);
    const DeviceArray<float> in(x), second(residual), out(x.size()), sum(x.size()), scale(weight),
        shift(bias);
    layernorm::Params params{};
    params.x = in.data();
    params.residual = second.data();
    params.weight = scale.data();
    params.bias = shift.data();
    params.out = out.data();
    params.sum = sum.data();
    params.length = static_cast<long long>(length);
    params.eps = 1e-5f;
    params.share = 1.0f / static_cast<float>(length);
    params.centred = 1;
    params.shape.lane_bits = 4;
    params.rows.count = static_cast<long long>(rows);
    params.rows.ndim = 1;
    params.rows.size[0] = static_cast<long long>(rows);
    for (auto& stride : params.rows.stride) stride[0] = static_cast<long long>(length);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      configure({.seed = seed, .workers = 2, .counters = false, .steps = kSteps});
      EXPECT_EQ(finding_of(launch_of(kernel, narrow ? 1 : 5, 128, params)), "");
    }
    const std::vector<float> got = out.get();
    for (size_t r = 0; r < rows; ++r) {
      double mean = 0, squares = 0;
      std::vector<double> row(length);
      for (size_t i = 0; i < length; ++i) {
        row[i] = x[r * length + i] + residual[r * length + i];
        mean += row[i] / static_cast<double>(length);
      }
      for (double value : row)
        squares += (value - mean) * (value - mean) / static_cast<double>(length);
      for (size_t i = 0; i < length; ++i) {
        const double wanted = (row[i] - mean) / std::sqrt(squares + 1e-5) * weight[i] + bias[i];
        ASSERT_NEAR(got[r * length + i], wanted, 2e-5) << kernel.expression << " " << r << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace softgpu
