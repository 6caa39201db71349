// Tests softmax on the CPU against its definition in double.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "row_cases.h"

namespace opdock_test::softmax_plugin {
namespace {

const Op& softmax() {
  static const Op op("softmax", "softmax");
  return op;
}

// Returns the row-major position in an array of shape `own`, broadcast to x's shape, of x's element
// `index`.
int64_t broadcast(const std::vector<int64_t>& shape, const std::vector<int64_t>& own,
                  int64_t index) {
  int64_t at = 0, stride = 1;
  for (size_t i = 1; i <= own.size(); ++i) {
    const int64_t coordinate = index % shape[shape.size() - i];
    index /= shape[shape.size() - i];
    if (own[own.size() - i] != 1) at += coordinate * stride;
    stride *= own[own.size() - i];
  }
  return at;
}

std::vector<Wanted> oracle(const Array& x, double scale, const Array* mask, bool causal) {
  const int64_t length = x.shape().back();
  std::vector<Wanted> out(static_cast<size_t>(x.numel()));
  for (int64_t row = 0; row < (length ? x.numel() / length : 0); ++row) {
    std::vector<long double> weights(static_cast<size_t>(length));
    long double most = -INFINITY, sum = 0;
    bool nan = false;
    auto score = [&](int64_t j) -> long double {
      if (causal) {
        const int64_t queries = x.shape()[x.shape().size() - 2];
        if (j > row % queries + length - queries) return -INFINITY;
      }
      const int64_t index = row * length + j;
      long double value = static_cast<long double>(x.get(index)) * scale;
      if (mask) value += mask->get(broadcast(x.shape(), mask->shape(), index));
      return value;
    };
    for (int64_t j = 0; j < length; ++j) {
      most = std::max(most, score(j));
      nan |= std::isnan(score(j));
    }
    for (int64_t j = 0; j < length; ++j) {
      const long double value = score(j);
      const bool out_of_it = value == -INFINITY;
      weights[static_cast<size_t>(j)] = out_of_it ? 0 : std::exp(value - most);
      sum += weights[static_cast<size_t>(j)];
    }
    for (int64_t j = 0; j < length; ++j) {
      const long double weight = weights[static_cast<size_t>(j)];
      const double value = nan ? NAN : sum == 0 ? 0 : static_cast<double>(weight / sum);
      out[static_cast<size_t>(row * length + j)] = {value, value};
    }
  }
  return out;
}

// Allows for the result's own rounding, half an ulp, and for the float computation: the rounding of
// the scores (|score| below 32 here: 16 ulp of 2^-24 … in the exponent), the exponential's 1 ulp
// and the sum's, together below 3e-6. In double the same with 2^-53: 6e-15.
void expect_softmax(const Array& out, const std::vector<Wanted>& wanted, const std::string& what) {
  const double computed = out.type() == Type::kFloat64 ? 6e-15 : 3e-6;
  // Highway's Exp gives 0 below e^-104 (float) and e^-1000 (double), where results are subnormal.
  const double absolute = half_smallest(out.type()) + (out.type() == Type::kFloat64 ? 0 : 1e-44);
  expect_close(out, wanted, computed, absolute, what);
}

struct SoftmaxCase {
  double scale = 1.0;
  Array* mask = nullptr;
  bool causal = false;
  std::vector<int64_t> out_strides = {};
};

void run_and_compare(const Array& x, const SoftmaxCase& c, const std::string& what) {
  const std::vector<Wanted> wanted = oracle(x, c.scale, c.mask, c.causal);
  Array out(x.type(), x.shape(), c.out_strides);
  const Result result = softmax().call(
      {x.value(), number(c.scale), c.mask ? c.mask->value() : none(), boolean(c.causal)}, {&out});
  ASSERT_EQ(result.status, OPDOCK_OK) << what << ": " << result.text;
  expect_softmax(out, wanted, what);
  EXPECT_EQ(out.gaps_changed(), 0) << what;
}

class SoftmaxOf : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, SoftmaxOf, every_type(), type_name);

TEST_P(SoftmaxOf, EveryRowLength) {
  for (int64_t length : row_lengths()) {
    Array x(GetParam(), {3, length});
    x.fill(static_cast<uint64_t>(length), 3.0);
    run_and_compare(x, {}, "length " + std::to_string(length));
    run_and_compare(x, {.scale = -0.37}, "scaled, length " + std::to_string(length));
  }
}

TEST_P(SoftmaxOf, BatchShapesAndStridedRows) {
  for (const std::vector<int64_t>& shape : batch_shapes()) {
    Array x(GetParam(), shape);
    x.fill(1, 2.0);
    run_and_compare(x, {}, "contiguous");
  }
  Array padded(GetParam(), {4, 3, 21}, {100, 25, 1}, 3);
  padded.fill(2);
  run_and_compare(padded, {}, "padded rows at an odd offset");
  run_and_compare(padded, {.out_strides = {90, 30, 1}}, "into padded rows");
  Array transposed(GetParam(), {4, 3, 21}, {21, 84, 1});
  transposed.fill(3);
  run_and_compare(transposed, {}, "batch dimensions swapped");
  Array backwards(GetParam(), {4, 21}, {-21, 1}, 63);
  backwards.fill(4);
  run_and_compare(backwards, {}, "negative batch stride");
  Array expanded(GetParam(), {4, 21}, {0, 1});
  expanded.fill(5);
  run_and_compare(expanded, {}, "stride 0");
}

TEST_P(SoftmaxOf, ManyRowsOnSeveralThreads) {
  Array x(GetParam(), {37, 23, 65});
  x.fill(6);
  run_and_compare(x, {}, "55315 elements");
}

TEST_P(SoftmaxOf, MaskOfEveryBroadcastForm) {
  const std::vector<int64_t> shape = {2, 3, 4, 19};
  // Each dimension is either x's or 1, and any number of leading dimensions is missing.
  for (int dims = 0; dims <= 4; ++dims) {
    for (int ones = 0; ones < 1 << dims; ++ones) {
      std::vector<int64_t> own;
      for (int i = 0; i < dims; ++i)
        own.push_back(ones >> i & 1 ? 1 : shape[static_cast<size_t>(4 - dims + i)]);
      Array x(GetParam(), shape), mask(GetParam(), own);
      x.fill(7);
      mask.fill(8, 2.0);
      if (mask.numel() > 3) mask.set(2, -INFINITY);
      for (bool causal : {false, true})
        run_and_compare(x, {.scale = 0.125, .mask = &mask, .causal = causal},
                        std::to_string(dims) + " dimensions, ones " + std::to_string(ones));
    }
  }
  Array x(GetParam(), shape), strided(GetParam(), {2, 1, 4, 19}, {200, 7, 45, 1}, 1);
  x.fill(9);
  strided.fill(10);
  run_and_compare(x, {.mask = &strided}, "a mask with gaps");
}

TEST_P(SoftmaxOf, CausalWithAnyNumberOfQueries) {
  for (int64_t queries : {1, 2, 7, 16, 17, 40}) {
    Array x(GetParam(), {2, queries, 16});
    x.fill(11);
    run_and_compare(x, {.scale = 0.5, .causal = true}, std::to_string(queries) + " queries");
  }
}

TEST_P(SoftmaxOf, FullyMaskedRowsAreZero) {
  for (int64_t length : {1, 5, 64, 5000}) {
    Array x(GetParam(), {2, length}), mask(GetParam(), {2, 1});
    x.fill(12);
    mask.set(0, -INFINITY);
    mask.set(1, 0);
    run_and_compare(x, {.mask = &mask}, "one row masked");
    Array all(GetParam(), {1, length});
    for (int64_t i = 0; i < length; ++i) all.set(i, -INFINITY);
    run_and_compare(all, {}, "all -inf");
  }
}

TEST_P(SoftmaxOf, NanAndInfinityAreNotHidden) {
  for (int64_t length : {3, 40, 5000}) {
    for (int64_t at : {int64_t{0}, length / 2, length - 1}) {
      for (double value : {double(NAN), double(INFINITY)}) {
        Array x(GetParam(), {2, length});
        x.fill(13);
        x.set(at, value);
        run_and_compare(x, {}, "one special element");
        // With all other elements -inf, the maximum does not show the NaN.
        for (int64_t i = 0; i < length; ++i)
          if (i != at) x.set(i, -INFINITY);
        run_and_compare(x, {}, "alone among -inf");
      }
    }
  }
  Array x(GetParam(), {2, 2});
  x.set(0, 1);
  x.set(1, NAN);  // masked by causality, so it takes no part
  x.set(2, 0);
  x.set(3, 0);
  Array out(GetParam(), {2, 2});
  ASSERT_EQ(softmax().call({x.value(), number(1), none(), boolean(true)}, {&out}).status,
            OPDOCK_OK);
  EXPECT_EQ(out.get(0), 1.0);
  EXPECT_EQ(out.get(1), 0.0);
}

TEST_P(SoftmaxOf, LargeScoresDoNotOverflow) {
  Array x(GetParam(), {1, 9});
  for (int64_t i = 0; i < 9; ++i) x.set(i, i % 2 ? 60000.0 : -60000.0);
  run_and_compare(x, {}, "60000");
}

TEST_P(SoftmaxOf, ZeroSizes) {
  for (const std::vector<int64_t>& shape : empty_shapes()) {
    Array x(GetParam(), shape);
    run_and_compare(x, {}, "empty");
  }
}

TEST_P(SoftmaxOf, InPlace) {
  for (int64_t length : {5, 64, 5000}) {
    Array x(GetParam(), {3, length});
    x.fill(14);
    const std::vector<Wanted> wanted = oracle(x, 2.0, nullptr, false);
    ASSERT_EQ(softmax().call({x.value(), number(2.0), none(), boolean(false)}, {&x}).status,
              OPDOCK_OK);
    expect_softmax(x, wanted, "in place");
  }
}

// ------------------------------------------------------------------------------------ bad input

Result call_bad(const opdock_value& x, const opdock_value& mask = none(), bool causal = false,
                int32_t device = OPDOCK_CPU) {
  return softmax().plan({x, number(1), mask, boolean(causal)}, device);
}

TEST(SoftmaxRefuses, BadArgumentsByName) {
  Array x(Type::kFloat32, {2, 3, 8}), integers(Type::kInt32, {2, 8}), scalar(Type::kFloat32, {});
  Array columns(Type::kFloat32, {8, 8}, {1, 8}), doubles(Type::kFloat64, {2, 8});
  Array half_mask(Type::kFloat16, {8}), wrong(Type::kFloat32, {7}),
      long_mask(Type::kFloat32, {1, 2, 3, 8});
  Array mask_columns(Type::kFloat32, {2, 3, 8}, {1, 2, 6}), vector(Type::kFloat32, {8});
  Array elsewhere(Type::kFloat32, {8}), odd(Type::kFloat32, {8}), odd_mask(Type::kFloat32, {8});
  Array middle(Type::kFloat32, {2, 2, 8});
  elsewhere.tensor()->device = {OPDOCK_CUDA, 0};
  odd.tensor()->byte_offset = 1;
  odd_mask.tensor()->byte_offset = 2;
  expect_refused({
      {call_bad(integers.value()), "'x'", "int32"},
      {call_bad(doubles.value(), none(), false, OPDOCK_CUDA), "'x'", "float64"},
      {call_bad(scalar.value()), "'x'", "0 dimensions"},
      {call_bad(vector.value(), none(), true), "'x'", "1 dimension"},
      {call_bad(columns.value()), "'x'", "strides [1, 8]"},
      {call_bad(odd.value()), "'x'", "address"},
      {call_bad(x.value(), half_mask.value()), "'mask'", "float16"},
      {call_bad(x.value(), elsewhere.value()), "'mask'", "cuda:0"},
      {call_bad(x.value(), wrong.value()), "'mask'", "[7]"},
      {call_bad(x.value(), long_mask.value()), "'mask'", "[1, 2, 3, 8]"},
      {call_bad(x.value(), middle.value()), "'mask'", "[2, 2, 8]"},
      {call_bad(x.value(), mask_columns.value()), "'mask'", "strides [1, 2, 6]"},
      {call_bad(x.value(), odd_mask.value()), "'mask'", "address"},
  });
}

TEST(SoftmaxRefuses, OutputsThatOverlapItsInputs) {
  Array x(Type::kFloat32, {2, 8});
  x.fill(1);
  Array shifted(Type::kFloat32, {2, 8});
  shifted.tensor()->data = x.tensor()->data;
  shifted.tensor()->byte_offset = 4;
  Result result = softmax().call({x.value(), number(1), none(), boolean(false)}, {&shifted});
  EXPECT_EQ(result.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(result.text.find("output 0: "), std::string::npos) << result.text;
  Array mask(Type::kFloat32, {2, 8}), out(Type::kFloat32, {2, 8});
  mask.fill(2);
  out.tensor()->data = mask.tensor()->data;
  result = softmax().call({x.value(), number(1), mask.value(), boolean(false)}, {&out});
  EXPECT_EQ(result.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(result.text.find("'mask'"), std::string::npos) << result.text;
}

TEST(SoftmaxPlan, ReadsNoDataAndFollowsItsShapeRule) {
  Array x(Type::kBFloat16, {4, 0, 6}, {100, 10, 1});
  x.tensor()->data = reinterpret_cast<void*>(64);  // never to be read
  const Result result =
      softmax().plan({x.value(OPDOCK_VALUE_NO_DATA), number(1), none(), boolean(false)});
  ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
  EXPECT_STREQ(softmax().descriptor().shape_rules[0], "like x");
  const opdock_output& out = result.planned[0];
  EXPECT_EQ(out.ndim, 3);
  EXPECT_EQ(std::vector<int64_t>(out.shape, out.shape + 3), (std::vector<int64_t>{4, 0, 6}));
  EXPECT_EQ(out.dtype.code, OPDOCK_DTYPE_BFLOAT);
}

}  // namespace
}  // namespace opdock_test::softmax_plugin
