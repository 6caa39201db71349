// Tests log_softmax on the CPU against its definition in long double.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "row_cases.h"

namespace opdock_test::log_softmax_plugin {
namespace {

const Op& log_softmax() {
  static const Op op("softmax", "log_softmax");
  return op;
}

struct Case {
  double scale = 1.0;
  Array* mask = nullptr;  // has the shape of one row
  bool causal = false;
  std::vector<int64_t> out_strides = {};
};

// Returns the expected results; Wanted::scale is the magnitude of the scores and the result, to
// which rounding errors are relative.
std::vector<Wanted> oracle(const Array& x, const Case& c) {
  const int64_t length = x.shape().back();
  std::vector<Wanted> out;
  for (int64_t row = 0; row < (length ? x.numel() / length : 0); ++row) {
    const int64_t queries = c.causal ? x.shape()[x.shape().size() - 2] : 1;
    std::vector<long double> scores;
    long double most = -INFINITY, sum = 0;
    bool nan = false;
    for (int64_t j = 0; j < length; ++j) {
      long double score = static_cast<long double>(x.get(row * length + j)) * c.scale;
      if (c.mask) score += c.mask->get(j);
      if (c.causal && j > row % queries + length - queries) score = -INFINITY;
      scores.push_back(score);
      most = std::fmax(most, score);
      nan |= std::isnan(score) || (std::isinf(score) && score > 0);
    }
    for (long double score : scores)
      if (!std::isinf(score)) sum += std::exp(score - most);
    for (long double score : scores) {
      const bool is_masked = std::isinf(score) && score < 0;
      const long double value = nan ? NAN : is_masked ? -INFINITY : score - most - std::log(sum);
      const long double size =
          is_masked ? 0 : std::fabs(score) + std::fabs(most) + std::fabs(value);
      out.push_back({static_cast<double>(value), static_cast<double>(size)});
    }
  }
  return out;
}

// Allows for the result's own rounding, and for the rounding in the float computation: of x * scale
// + mask, of subtracting the maximum and the logarithm, and of the sum. That is a few half ulps of
// the magnitudes.
void expect_log_softmax(const Array& out, const std::vector<Wanted>& wanted,
                        const std::string& what) {
  const Type computed = out.type() == Type::kFloat64 ? Type::kFloat64 : Type::kFloat32;
  for (int64_t i = 0; i < out.numel(); ++i) {
    const Wanted& want = wanted[static_cast<size_t>(i)];
    const double found = out.get(i);
    if (std::isnan(want.value)) {
      ASSERT_TRUE(std::isnan(found)) << what << " element " << i << " is " << found;
    } else if (std::isinf(want.value)) {
      ASSERT_EQ(found, want.value) << what << " element " << i;
    } else {
      const double rounding = half_ulp(out.type()) * 1.001 * std::fabs(want.value);
      ASSERT_NEAR(found, want.value, rounding + 8 * half_ulp(computed) * (1 + want.scale))
          << what << " element " << i;
    }
  }
}

Result call(const Array& x, const Case& c, Array* out) {
  return log_softmax().call(
      {x.value(), number(c.scale), c.mask ? c.mask->value() : none(), boolean(c.causal)}, {out});
}

void run_and_compare(const Array& x, const Case& c, const std::string& what) {
  const std::vector<Wanted> wanted = oracle(x, c);
  Array out(x.type(), x.shape(), c.out_strides);
  const Result result = call(x, c, &out);
  ASSERT_EQ(result.status, OPDOCK_OK) << what << ": " << result.text;
  expect_log_softmax(out, wanted, what);
  EXPECT_EQ(out.gaps_changed(), 0) << what;
}

class LogSoftmaxOf : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, LogSoftmaxOf, every_type(), type_name);

TEST_P(LogSoftmaxOf, EveryRowLength) {
  for (int64_t length : row_lengths()) {
    Array x(GetParam(), {3, length}), mask(GetParam(), {length});
    x.fill(static_cast<uint64_t>(length), 3.0);
    mask.fill(static_cast<uint64_t>(length) + 1, 2.0);
    mask.set(length / 2, -INFINITY);
    const std::string what = "length " + std::to_string(length);
    run_and_compare(x, {}, what);
    run_and_compare(x, {.scale = -0.37, .mask = &mask}, what + ", scaled and masked");
  }
}

TEST_P(LogSoftmaxOf, BatchShapesAndStridedRows) {
  for (const std::vector<int64_t>& shape : batch_shapes()) {
    Array x(GetParam(), shape);
    x.fill(1, 2.0);
    run_and_compare(x, {}, "contiguous");
  }
  Array padded(GetParam(), {4, 3, 21}, {100, 25, 1}, 3);
  padded.fill(2);
  run_and_compare(padded, {.out_strides = {90, 30, 1}}, "padded rows at an odd offset");
}

TEST_P(LogSoftmaxOf, ManyRowsOnSeveralThreads) {
  Array x(GetParam(), {37, 23, 65});
  x.fill(6);
  run_and_compare(x, {}, "55315 elements");
}

TEST_P(LogSoftmaxOf, CausalWithAnyNumberOfQueries) {
  for (int64_t queries : {1, 2, 7, 16, 17, 40}) {
    Array x(GetParam(), {2, queries, 16});
    x.fill(11);
    run_and_compare(x, {.scale = 0.5, .causal = true}, std::to_string(queries) + " queries");
  }
}

TEST_P(LogSoftmaxOf, FullyMaskedRowsAreMinusInfinity) {
  for (int64_t length : {1, 5, 64, 5000, 9000}) {
    Array x(GetParam(), {2, length});
    x.fill(12);
    for (int64_t i = 0; i < length; ++i) x.set(i, -INFINITY);
    run_and_compare(x, {}, "one row masked");
    // Masks all elements except the last: the maximum comes late.
    x.set(length - 1, 3.0);
    run_and_compare(x, {}, "the last element alone");
  }
}

TEST_P(LogSoftmaxOf, NanAndInfinityAreNotHidden) {
  for (int64_t length : {3, 40, 5000, 9000}) {
    for (int64_t at : {int64_t{0}, length / 2, length - 1}) {
      for (double value : {double(NAN), double(INFINITY)}) {
        Array x(GetParam(), {2, length});
        x.fill(13);
        x.set(at, value);
        run_and_compare(x, {}, "one special element");
        for (int64_t i = 0; i < length; ++i)
          if (i != at) x.set(i, -INFINITY);
        run_and_compare(x, {}, "alone among -inf");
      }
    }
  }
}

TEST_P(LogSoftmaxOf, LargeScoresDoNotOverflow) {
  Array x(GetParam(), {1, 9});
  for (int64_t i = 0; i < 9; ++i) x.set(i, i % 2 ? 30000.0 : -30000.0);
  run_and_compare(x, {}, "30000");
}

TEST_P(LogSoftmaxOf, ZeroSizes) {
  for (const std::vector<int64_t>& shape : empty_shapes()) {
    Array x(GetParam(), shape);
    run_and_compare(x, {}, "empty");
  }
}

TEST_P(LogSoftmaxOf, InPlace) {
  for (int64_t length : {5, 64, 5000}) {
    Array x(GetParam(), {3, length});
    x.fill(14);
    const Case c = {.scale = 2.0};
    const std::vector<Wanted> wanted = oracle(x, c);
    ASSERT_EQ(call(x, c, &x).status, OPDOCK_OK);
    expect_log_softmax(x, wanted, "in place");
  }
}

TEST(LogSoftmaxRefuses, BadArgumentsByName) {
  Array x(Type::kFloat32, {2, 8}), integers(Type::kInt32, {2, 8}), wrong(Type::kFloat32, {7});
  const auto plan = [](const opdock_value& x_value, const opdock_value& mask) {
    return log_softmax().plan({x_value, number(1), mask, boolean(false)});
  };
  expect_refused({{plan(integers.value(), none()), "'x'", "int32"},
                  {plan(x.value(), wrong.value()), "'mask'", "[7]"}});
}

}  // namespace
}  // namespace opdock_test::log_softmax_plugin
