// Tests rms_norm and add_rms_norm on the CPU against their definition in long double.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "row_cases.h"

namespace opdock_test::rms_norm_plugin {
namespace {

const Op& rms_norm() {
  static const Op op("norm", "rms_norm");
  return op;
}
const Op& add_rms_norm() {
  static const Op op("norm", "add_rms_norm");
  return op;
}

// Returns the expected results. Rounding errors are relative to them, because nothing is
// subtracted.
std::vector<Wanted> oracle(const std::vector<double>& x, int64_t length, const Array* weight,
                           double eps) {
  const size_t n = static_cast<size_t>(length);
  std::vector<Wanted> out;
  for (size_t begin = 0; begin < x.size(); begin += n) {
    long double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += static_cast<long double>(x[begin + i]) * x[begin + i];
    const long double root = std::sqrt(squares / n + eps);
    for (size_t i = 0; i < n; ++i) {
      const double w = weight ? weight->get(static_cast<int64_t>(i)) : 1.0;
      const double value = static_cast<double>(x[begin + i] / root * w);
      out.push_back({value, std::fabs(value)});
    }
  }
  return out;
}

// Allows for half ulps of the type that is computed in: of the sum of squares, the root and the two
// products.
void expect_norm(const Array& out, const std::vector<Wanted>& wanted, const std::string& what) {
  const double computed =
      8 * half_ulp(out.type() == Type::kFloat64 ? Type::kFloat64 : Type::kFloat32);
  expect_close(out, wanted, computed, half_smallest(out.type()), what);
}

struct Case {
  Array* weight = nullptr;
  double eps = 1e-5;
  std::vector<int64_t> out_strides = {};

  opdock_value weight_value() const { return weight ? weight->value() : none(); }
};

int64_t row_length(const Array& x) {
  return std::max<int64_t>(x.shape().back(), 1);
}

void run_rms_norm(const Array& x, const Case& c, const std::string& what) {
  std::vector<double> values;
  for (int64_t i = 0; i < x.numel(); ++i) values.push_back(x.get(i));
  Array out(x.type(), x.shape(), c.out_strides);
  const Result result = rms_norm().call({x.value(), c.weight_value(), number(c.eps)}, {&out});
  ASSERT_EQ(result.status, OPDOCK_OK) << what << ": " << result.text;
  expect_norm(out, oracle(values, row_length(x), c.weight, c.eps), what);
  EXPECT_EQ(out.gaps_changed(), 0) << what;
}

void run_add_rms_norm(const Array& x, const Array& residual, const Case& c,
                      const std::string& what) {
  std::vector<double> sums;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double exact = x.get(i) + residual.get(i);
    // Narrower types are added in float first, so that the sum is rounded twice, as in the op.
    sums.push_back(
        round_to(x.type(), x.type() == Type::kFloat64 ? exact : round_to(Type::kFloat32, exact)));
  }
  Array out(x.type(), x.shape(), c.out_strides), sum(x.type(), x.shape(), c.out_strides);
  const Result result = add_rms_norm().call(
      {x.value(), residual.value(), c.weight_value(), number(c.eps)}, {&out, &sum});
  ASSERT_EQ(result.status, OPDOCK_OK) << what << ": " << result.text;
  for (int64_t i = 0; i < x.numel(); ++i)
    ASSERT_EQ(sum.get(i), sums[static_cast<size_t>(i)]) << what << " sum " << i;
  expect_norm(out, oracle(sums, row_length(x), c.weight, c.eps), what);
  EXPECT_EQ(out.gaps_changed() + sum.gaps_changed(), 0) << what;
}

class RmsNormOf : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, RmsNormOf, every_type(), type_name);

TEST_P(RmsNormOf, EveryRowLength) {
  for (int64_t length : row_lengths()) {
    const uint64_t seed = static_cast<uint64_t>(length);
    Array x(GetParam(), {3, length}), residual(GetParam(), {3, length});
    Array weight(GetParam(), {length});
    x.fill(seed, 3.0, 0.5);
    residual.fill(seed + 1, 2.0);
    weight.fill(seed + 2, 0.5, 1.0);
    const std::string what = "length " + std::to_string(length);
    run_rms_norm(x, {}, what);
    run_rms_norm(x, {.weight = &weight}, what + " weighted");
    run_add_rms_norm(x, residual, {.weight = &weight}, what + " add");
  }
}

TEST_P(RmsNormOf, Eps) {
  Array x(GetParam(), {4, 37}), residual(GetParam(), {4, 37});
  x.fill(1);
  residual.fill(2);
  for (double eps : {0.0, 1e-12, 1e-5, 1.0}) {
    run_rms_norm(x, {.eps = eps}, "rms_norm");
    run_add_rms_norm(x, residual, {.eps = eps}, "add_rms_norm");
  }
}

TEST_P(RmsNormOf, BatchShapesAndStridedRows) {
  for (const std::vector<int64_t>& shape : batch_shapes()) {
    Array x(GetParam(), shape), residual(GetParam(), shape);
    x.fill(1, 2.0);
    residual.fill(2);
    run_rms_norm(x, {}, "contiguous");
    run_add_rms_norm(x, residual, {}, "contiguous");
  }
  Array padded(GetParam(), {4, 3, 21}, {100, 25, 1}, 3),
      expanded(GetParam(), {4, 3, 21}, {0, 0, 1});
  padded.fill(3);
  expanded.fill(4);
  run_rms_norm(padded, {.out_strides = {90, 30, 1}}, "padded");
  run_add_rms_norm(padded, expanded, {.out_strides = {90, 30, 1}}, "padded and expanded");
}

TEST_P(RmsNormOf, ManyRowsOnSeveralThreads) {
  Array x(GetParam(), {37, 23, 65});
  x.fill(7);
  run_rms_norm(x, {}, "55315 elements");
}

TEST_P(RmsNormOf, NanAndInfinity) {
  for (int64_t length : {3, 40, 5000}) {
    Array x(GetParam(), {2, length}), out(GetParam(), {2, length});
    x.fill(10);
    x.set(length - 1, NAN);
    x.set(length, INFINITY);
    ASSERT_EQ(rms_norm().call({x.value(), none(), number(1e-5)}, {&out}).status, OPDOCK_OK);
    // By the definition, NaN spoils its row, and infinity divides the other elements to 0.
    for (int64_t i = 0; i < length; ++i) ASSERT_TRUE(std::isnan(out.get(i))) << i;
    ASSERT_TRUE(std::isnan(out.get(length)));
    for (int64_t i = length + 1; i < 2 * length; ++i) ASSERT_EQ(out.get(i), 0) << i;
  }
}

TEST_P(RmsNormOf, ZeroSizes) {
  for (const std::vector<int64_t>& shape : empty_shapes()) {
    Array x(GetParam(), shape), residual(GetParam(), shape);
    run_rms_norm(x, {}, "empty");
    run_add_rms_norm(x, residual, {}, "empty");
  }
}

TEST_P(RmsNormOf, InPlace) {
  for (int64_t length : {5, 64, 5000}) {
    Array x(GetParam(), {3, length}), residual(GetParam(), {3, length});
    Array out(GetParam(), {3, length}), sum(GetParam(), {3, length});
    x.fill(11);
    residual.fill(12);
    const std::vector<opdock_value> args = {x.value(), residual.value(), none(), number(1e-5)};
    ASSERT_EQ(add_rms_norm().call(args, {&out, &sum}).status, OPDOCK_OK);
    // The sum goes into the residual, as a model's residual stream does, and the result into x.
    ASSERT_EQ(add_rms_norm().call(args, {&x, &residual}).status, OPDOCK_OK);
    for (int64_t i = 0; i < x.numel(); ++i) {
      ASSERT_EQ(x.get(i), out.get(i));
      ASSERT_EQ(residual.get(i), sum.get(i));
    }
  }
}

TEST(RmsNormRefuses, BadArgumentsByName) {
  Array x(Type::kFloat32, {2, 8}), integers(Type::kInt32, {2, 8}), seven(Type::kFloat32, {7});
  const opdock_value eps = number(1e-5);
  expect_refused(
      {{rms_norm().plan({integers.value(), none(), eps}), "'x'", "int32"},
       {rms_norm().plan({x.value(), seven.value(), eps}), "'weight'", "[7]"},
       {rms_norm().plan({x.value(), none(), number(-1)}), "'eps'", "-1"},
       {add_rms_norm().plan({x.value(), seven.value(), none(), eps}), "'residual'", "[7]"}});
}

}  // namespace
}  // namespace opdock_test::rms_norm_plugin
