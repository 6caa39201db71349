// Tests cross entropy and its gradient on the CPU against their definitions in long double.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "row_cases.h"

namespace opdock_test::cross_entropy_plugin {
namespace {

constexpr double kIgnored = -100;

struct Case {
  double smoothing = 0;
  const Array* scale = nullptr;  // one number, or one per row
  std::vector<int64_t> strides = {};
};

struct Results {
  std::vector<Wanted> loss, gradient;
};

Results oracle(const Array& logits, const Array& target, const Case& c) {
  const int64_t length = logits.shape().back();
  Results wanted;
  for (int64_t row = 0; row < target.numel(); ++row) {
    const auto logit = [&](int64_t j) -> long double { return logits.get(row * length + j); };
    const bool ignored = target.get(row) == kIgnored;
    const int64_t right = ignored ? 0 : static_cast<int64_t>(target.get(row));
    const long double scale = c.scale ? c.scale->get(c.scale->numel() > 1 ? row : 0) : 1,
                      share = c.smoothing / static_cast<long double>(length);
    long double most = -INFINITY, sum = 0, mean = 0;
    for (int64_t j = 0; j < length; ++j) most = std::max(most, logit(j));
    for (int64_t j = 0; j < length; ++j) sum += std::exp(logit(j) - most);
    for (int64_t j = 0; j < length; ++j) mean += (most - logit(j)) / length;
    const long double log_sum = std::log(sum);
    long double loss = log_sum + (most - logit(right));
    if (c.smoothing > 0) loss = (1 - c.smoothing) * loss + c.smoothing * (log_sum + mean);
    const double value = ignored ? 0 : static_cast<double>(loss);
    wanted.loss.push_back({value, 1 + std::fabs(value)});
    for (int64_t j = 0; j < length; ++j) {
      const long double part = std::exp(logit(j) - most) / sum, one = j == right;
      const long double slope = scale * (part - share - (1 - c.smoothing) * one);
      const long double terms = std::fabs(scale) * (part + share + one);
      wanted.gradient.push_back(
          {ignored ? 0 : static_cast<double>(slope), ignored ? 0 : static_cast<double>(terms)});
    }
  }
  return wanted;
}

// Allows for the results' own rounding, and in the float computation for that of the exponential,
// the sum and the scores, together below 3e-6; in double the same with 2^-53.
void expect_results(const Array& loss, const Array& gradient, const Results& wanted,
                    const std::string& what) {
  const double computed = gradient.type() == Type::kFloat64 ? 6e-15 : 3e-6;
  expect_close(loss, wanted.loss, computed, 0, what + ", loss");
  expect_close(gradient, wanted.gradient, computed, half_smallest(gradient.type()) + 1e-44,
               what + ", gradient");
}

Result call(const Array& logits, const Array& target, const Case& c, Array* loss, Array* gradient) {
  static const Op op("cross_entropy", "cross_entropy_with_gradient");
  opdock_value dtype = none();
  if (loss->type() == Type::kFloat64) {
    dtype.tag = OPDOCK_TAG_DTYPE;
    dtype.as.dtype = dtype_of(Type::kFloat64);
  }
  return op.call({logits.value(), target.value(), c.scale ? c.scale->value() : none(),
                  integer(static_cast<int64_t>(kIgnored)), number(c.smoothing), dtype},
                 {loss, gradient});
}

// Sets the targets to the last class, the first, one between them, and an ignored row.
void set_targets(int64_t length, Array* target) {
  for (int64_t i = 0; i < target->numel(); ++i)
    target->set(i, i % 4 == 0   ? static_cast<double>(length - 1)
                   : i % 4 == 1 ? 0
                   : i % 4 == 2 ? static_cast<double>(length / 2)
                                : kIgnored);
}

Type loss_type(const Array& logits) {
  return logits.type() == Type::kFloat64 ? Type::kFloat64 : Type::kFloat32;
}

void run_and_compare(const Array& logits, const Case& c, const std::string& what) {
  const std::vector<int64_t> batch(logits.shape().begin(), logits.shape().end() - 1);
  Array target(Type::kInt32, batch), loss(loss_type(logits), batch),
      gradient(logits.type(), logits.shape(), c.strides);
  set_targets(logits.shape().back(), &target);
  const Results wanted = oracle(logits, target, c);
  const Result result = call(logits, target, c, &loss, &gradient);
  ASSERT_EQ(result.status, OPDOCK_OK) << what << ": " << result.text;
  expect_results(loss, gradient, wanted, what);
  EXPECT_EQ(gradient.gaps_changed(), 0) << what;
}

class CrossEntropyOf : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, CrossEntropyOf, every_type(), type_name);

TEST_P(CrossEntropyOf, EveryRowLength) {
  for (int64_t length : row_lengths()) {
    Array logits(GetParam(), {4, length});
    logits.fill(static_cast<uint64_t>(length), 3.0);
    const std::string what = "length " + std::to_string(length);
    run_and_compare(logits, {}, what);
    run_and_compare(logits, {.smoothing = 0.2}, what + ", smoothed");
  }
}

TEST_P(CrossEntropyOf, BatchShapesAndStridedRows) {
  for (const std::vector<int64_t>& shape : batch_shapes()) {
    Array logits(GetParam(), shape);
    logits.fill(1, 2.0);
    run_and_compare(logits, {}, "contiguous");
  }
  Array padded(GetParam(), {4, 3, 21}, {100, 25, 1}, 3);
  padded.fill(2);
  run_and_compare(padded, {.strides = {90, 30, 1}}, "padded rows at an odd offset");
  Array transposed(GetParam(), {4, 3, 21}, {21, 84, 1});
  transposed.fill(3);
  run_and_compare(transposed, {.smoothing = 0.5}, "batch dimensions swapped");
}

TEST_P(CrossEntropyOf, ManyRowsOnSeveralThreads) {
  Array logits(GetParam(), {37, 23, 65});
  logits.fill(6);
  run_and_compare(logits, {}, "55315 elements");
}

TEST_P(CrossEntropyOf, Scales) {
  Array logits(GetParam(), {4, 70}), one(loss_type(logits), {}), each(loss_type(logits), {4}, {3});
  logits.fill(7, 2.0);
  each.fill(8, 1.0);
  for (double value : {0.0, -0.5, 1e-30, 1000.0}) {
    one.set(0, value);
    run_and_compare(logits, {.scale = &one}, "scale " + std::to_string(value));
  }
  run_and_compare(logits, {.smoothing = 0.1, .scale = &each}, "a scale for each row");
}

// Larger logits come later, so that the sum up to then must be scaled down.
TEST_P(CrossEntropyOf, RisingRows) {
  Array logits(GetParam(), {2, 9000});
  for (int64_t i = 0; i < logits.numel(); ++i)
    logits.set(i, static_cast<double>(i % 9000) / 900 - 20);
  run_and_compare(logits, {.smoothing = 0.1}, "rising");
}

TEST_P(CrossEntropyOf, NanAndInfinityAreNotHidden) {
  for (int64_t length : {3, 40, 5000, 9000})
    for (int64_t at : {int64_t{0}, length / 2, length - 1})
      for (double value : {double(NAN), double(INFINITY)}) {
        Array logits(GetParam(), {2, length}), target(Type::kInt32, {2}),
            loss(loss_type(logits), {2}), gradient(GetParam(), {2, length});
        set_targets(length, &target);
        logits.fill(13);
        logits.set(at, value);
        ASSERT_EQ(call(logits, target, {}, &loss, &gradient).status, OPDOCK_OK);
        EXPECT_TRUE(std::isnan(loss.get(0)));
        EXPECT_FALSE(std::isnan(loss.get(1)));
        for (int64_t i = 0; i < 2 * length; ++i)
          ASSERT_EQ(std::isnan(gradient.get(i)), i < length) << "element " << i;
      }
}

TEST_P(CrossEntropyOf, LogitsWithoutAShare) {
  for (int64_t length : {3, 40, 9000}) {
    Array logits(GetParam(), {3, length}), target(Type::kInt32, {3}), loss(loss_type(logits), {3}),
        gradient(GetParam(), {3, length});
    for (int64_t i = 0; i < logits.numel(); ++i) logits.set(i, -INFINITY);
    logits.set(length, 2.0);
    logits.set(2 * length + 1, 2.0);
    for (int64_t row = 0; row < 3; ++row) target.set(row, 0);
    ASSERT_EQ(call(logits, target, {}, &loss, &gradient).status, OPDOCK_OK);
    EXPECT_TRUE(std::isnan(loss.get(0)) && std::isnan(gradient.get(1)));  // none is finite
    EXPECT_EQ(loss.get(1), 0.0);
    EXPECT_EQ(gradient.get(length), 0.0);
    EXPECT_EQ(loss.get(2), INFINITY);
    EXPECT_EQ(gradient.get(2 * length), -1.0);
    EXPECT_EQ(gradient.get(2 * length + 1), 1.0);
  }
}

TEST_P(CrossEntropyOf, InPlaceOfTheLogits) {
  for (int64_t length : {5, 64, 9000}) {
    Array logits(GetParam(), {4, length}), target(Type::kInt32, {4}), loss(loss_type(logits), {4});
    logits.fill(14);
    set_targets(length, &target);
    const Case c = {.smoothing = 0.1};
    const Results wanted = oracle(logits, target, c);
    ASSERT_EQ(call(logits, target, c, &loss, &logits).status, OPDOCK_OK);
    expect_results(loss, logits, wanted, "in place");
  }
}

TEST_P(CrossEntropyOf, TargetsThatAreNoClassAreRefusedBeforeAnythingIsWritten) {
  for (double bad : {-1.0, 8.0, -101.0}) {
    Array logits(GetParam(), {3, 8}), target(Type::kInt32, {3}), loss(loss_type(logits), {3}),
        gradient(GetParam(), {3, 8});
    logits.fill(15);
    for (int64_t row = 0; row < 3; ++row) target.set(row, row == 1 ? bad : 7);
    const Result refused = call(logits, target, {}, &loss, &gradient);
    EXPECT_EQ(refused.status, OPDOCK_INVALID_ARGUMENT);
    EXPECT_NE(refused.text.find("'target'"), std::string::npos) << refused.text;
    EXPECT_NE(refused.text.find("row 1"), std::string::npos) << refused.text;
    EXPECT_EQ(gradient.unwritten(), 24);
  }
}

TEST(CrossEntropyRefuses, BadArgumentsByName) {
  Array logits(Type::kFloat32, {2, 8}), target(Type::kInt32, {2}), wrong(Type::kFloat32, {3}),
      integers(Type::kInt32, {2, 8});
  const Op op("cross_entropy", "cross_entropy_with_gradient");
  const auto plan = [&](const Array& x, const Array& t, opdock_value scale, double smoothing) {
    return op.plan({x.value(), t.value(), scale, integer(-100), number(smoothing), none()});
  };
  expect_refused({{plan(integers, target, none(), 0), "'logits'", "int32"},
                  {plan(logits, wrong, none(), 0), "'target'", "float32"},
                  {plan(logits, integers, none(), 0), "'target'", "[2, 8]"},
                  {plan(logits, target, wrong.value(), 0), "'scale'", "[3]"},
                  {plan(logits, target, none(), NAN), "'label_smoothing'", "nan"},
                  {plan(logits, target, none(), 1.01), "'label_smoothing'", "1.01"}});
}

}  // namespace
}  // namespace opdock_test::cross_entropy_plugin
