// Tests layer_norm and add_layer_norm on the CPU against their definition in long double.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "row_cases.h"

namespace opdock_test::norm_plugin {
namespace {

const Op& layer_norm() {
  static const Op op("norm", "layer_norm");
  return op;
}
const Op& add_layer_norm() {
  static const Op op("norm", "add_layer_norm");
  return op;
}

// Returns the expected results. Rounding errors are relative to the terms of the last formula, and
// to the mean's error, which is of the order of the deviation or of the mean itself.
std::vector<Wanted> oracle(const std::vector<double>& x, int64_t length, const Array* weight,
                           const Array* bias, double eps) {
  std::vector<Wanted> out(x.size());
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(length)) {
    const size_t n = static_cast<size_t>(length);
    long double sum = 0, squares = 0;
    for (size_t i = 0; i < n; ++i) sum += x[begin + i];
    const long double mean = sum / n;
    for (size_t i = 0; i < n; ++i) squares += (x[begin + i] - mean) * (x[begin + i] - mean);
    const long double deviation = std::sqrt(squares / n + eps);
    for (size_t i = 0; i < n; ++i) {
      const long double y = (x[begin + i] - mean) / deviation;
      const int64_t at = static_cast<int64_t>(i);
      const double w = weight ? weight->get(at) : 1.0, b = bias ? bias->get(at) : 0.0;
      out[begin + i] = {static_cast<double>(y * w + b),
                        static_cast<double>(std::fabs(y * w) + std::fabs(b) +
                                            std::fabs(w) * (1 + std::fabs(mean) / deviation))};
    }
  }
  return out;
}

std::vector<double> values(const Array& x) {
  std::vector<double> out;
  for (int64_t i = 0; i < x.numel(); ++i) out.push_back(x.get(i));
  return out;
}

// Allows for the result's own rounding, half an ulp, and for a handful of roundings in the
// computation: of the mean, of x - mean, of the deviation and of the affine map. Together these are
// 8 half ulps of the type that is computed in.
void expect_norm(const Array& out, const std::vector<Wanted>& wanted, const std::string& what) {
  const double computed =
      8 * half_ulp(out.type() == Type::kFloat64 ? Type::kFloat64 : Type::kFloat32);
  expect_close(out, wanted, computed, half_smallest(out.type()), what);
}

opdock_value value(Array* array) {
  return array ? array->value() : none();
}

struct Case {
  Array* weight = nullptr;
  Array* bias = nullptr;
  double eps = 1e-5;
  std::vector<int64_t> out_strides = {};
};

void run_layer_norm(const Array& x, const Case& c, const std::string& what) {
  const int64_t length = std::max<int64_t>(x.shape().back(), 1);
  const std::vector<Wanted> wanted = oracle(values(x), length, c.weight, c.bias, c.eps);
  Array out(x.type(), x.shape(), c.out_strides);
  const Result result =
      layer_norm().call({x.value(), value(c.weight), value(c.bias), number(c.eps)}, {&out});
  ASSERT_EQ(result.status, OPDOCK_OK) << what << ": " << result.text;
  expect_norm(out, wanted, what);
  EXPECT_EQ(out.gaps_changed(), 0) << what;
}

void run_add_layer_norm(const Array& x, const Array& residual, const Case& c,
                        const std::string& what) {
  // Narrower types are added in float first, so that the sum is rounded twice, as in the op.
  std::vector<double> sums;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double exact = x.get(i) + residual.get(i);
    sums.push_back(
        round_to(x.type(), x.type() == Type::kFloat64 ? exact : round_to(Type::kFloat32, exact)));
  }
  const int64_t length = std::max<int64_t>(x.shape().back(), 1);
  const std::vector<Wanted> wanted = oracle(sums, length, c.weight, c.bias, c.eps);
  Array out(x.type(), x.shape(), c.out_strides), sum(x.type(), x.shape(), c.out_strides);
  const Result result = add_layer_norm().call(
      {x.value(), residual.value(), value(c.weight), value(c.bias), number(c.eps)}, {&out, &sum});
  ASSERT_EQ(result.status, OPDOCK_OK) << what << ": " << result.text;
  for (int64_t i = 0; i < x.numel(); ++i)
    ASSERT_EQ(sum.get(i), sums[static_cast<size_t>(i)]) << what << " sum " << i;
  expect_norm(out, wanted, what);
  EXPECT_EQ(out.gaps_changed() + sum.gaps_changed(), 0) << what;
}

class NormOf : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, NormOf, every_type(), type_name);

TEST_P(NormOf, EveryRowLength) {
  for (int64_t length : row_lengths()) {
    const uint64_t seed = static_cast<uint64_t>(length);
    Array x(GetParam(), {3, length}), residual(GetParam(), {3, length});
    Array weight(GetParam(), {length}), bias(GetParam(), {length});
    x.fill(seed, 3.0, 0.5);
    residual.fill(seed + 1, 2.0);
    weight.fill(seed + 2, 0.5, 1.0);
    bias.fill(seed + 3);
    const std::string what = "length " + std::to_string(length);
    run_layer_norm(x, {}, what);
    run_layer_norm(x, {.weight = &weight, .bias = &bias}, what + " affine");
    run_add_layer_norm(x, residual, {.weight = &weight, .bias = &bias}, what + " add");
  }
}

TEST_P(NormOf, WeightAndBiasEachOptional) {
  Array x(GetParam(), {4, 37}), residual(GetParam(), {4, 37});
  Array weight(GetParam(), {37}), bias(GetParam(), {37});
  x.fill(1);
  residual.fill(2);
  weight.fill(3);
  bias.fill(4);
  for (Array* w : {static_cast<Array*>(nullptr), &weight})
    for (Array* b : {static_cast<Array*>(nullptr), &bias})
      for (double eps : {0.0, 1e-12, 1e-5, 1.0}) {
        run_layer_norm(x, {.weight = w, .bias = b, .eps = eps}, "layer_norm");
        run_add_layer_norm(x, residual, {.weight = w, .bias = b, .eps = eps}, "add_layer_norm");
      }
}

TEST_P(NormOf, BatchShapesAndStridedRows) {
  for (const std::vector<int64_t>& shape : batch_shapes()) {
    Array x(GetParam(), shape), residual(GetParam(), shape);
    x.fill(1, 2.0);
    residual.fill(2);
    run_layer_norm(x, {}, "contiguous");
    run_add_layer_norm(x, residual, {}, "contiguous");
  }
  Array padded(GetParam(), {4, 3, 21}, {100, 25, 1}, 3);
  Array transposed(GetParam(), {4, 3, 21}, {21, 84, 1});
  Array backwards(GetParam(), {4, 3, 21}, {-63, 21, 1}, 189);
  Array expanded(GetParam(), {4, 3, 21}, {0, 21, 1});
  padded.fill(3);
  transposed.fill(4);
  backwards.fill(5);
  expanded.fill(6);
  for (Array* x : {&padded, &transposed, &backwards, &expanded}) {
    run_layer_norm(*x, {}, "strided");
    run_layer_norm(*x, {.out_strides = {90, 30, 1}}, "into padded rows");
    for (Array* residual : {&padded, &transposed, &backwards, &expanded})
      run_add_layer_norm(*x, *residual, {.out_strides = {90, 30, 1}}, "both strided");
  }
}

TEST_P(NormOf, ManyRowsOnSeveralThreads) {
  Array x(GetParam(), {37, 23, 65});
  x.fill(7);
  run_layer_norm(x, {}, "55315 elements");
}

TEST_P(NormOf, MeanFarFromZero) {
  // One-pass formulas lose every digit here.
  Array x(GetParam(), {2, 1000});
  x.fill(8, 1.0, 300.0);
  run_layer_norm(x, {}, "mean 300, deviation 1");
}

TEST_P(NormOf, ConstantRows) {
  Array x(GetParam(), {2, 67});
  x.fill(9, 0.0, 3.0);
  run_layer_norm(x, {}, "constant");
}

TEST_P(NormOf, NanAndInfinityAreNotHidden) {
  for (double special : {double(NAN), double(INFINITY)}) {
    Array x(GetParam(), {2, 40});
    x.fill(10);
    x.set(39, special);
    run_layer_norm(x, {}, "special");
  }
}

TEST_P(NormOf, ZeroSizes) {
  for (const std::vector<int64_t>& shape : empty_shapes()) {
    Array x(GetParam(), shape), residual(GetParam(), shape);
    run_layer_norm(x, {}, "empty");
    run_add_layer_norm(x, residual, {}, "empty");
  }
}

TEST_P(NormOf, InPlace) {
  for (int64_t length : {5, 64, 5000}) {
    Array x(GetParam(), {3, length}), residual(GetParam(), {3, length});
    x.fill(11);
    residual.fill(12);
    const std::vector<Wanted> wanted = oracle(values(x), length, nullptr, nullptr, 1e-5);
    ASSERT_EQ(layer_norm().call({x.value(), none(), none(), number(1e-5)}, {&x}).status, OPDOCK_OK);
    expect_norm(x, wanted, "layer_norm in place");
    // The sum goes into the residual, as a model's residual stream does, and the result into x.
    Array out(GetParam(), {3, length}), sum(GetParam(), {3, length});
    ASSERT_EQ(add_layer_norm()
                  .call({x.value(), residual.value(), none(), none(), number(1e-5)}, {&out, &sum})
                  .status,
              OPDOCK_OK);
    ASSERT_EQ(
        add_layer_norm()
            .call({x.value(), residual.value(), none(), none(), number(1e-5)}, {&x, &residual})
            .status,
        OPDOCK_OK);
    for (int64_t i = 0; i < x.numel(); ++i) {
      ASSERT_EQ(x.get(i), out.get(i));
      ASSERT_EQ(residual.get(i), sum.get(i));
    }
  }
}

// ------------------------------------------------------------------------------------ bad input

TEST(NormRefuses, BadArgumentsByName) {
  Array x(Type::kFloat32, {2, 8}), integers(Type::kInt32, {2, 8}), scalar(Type::kFloat32, {});
  Array columns(Type::kFloat32, {8, 8}, {1, 8}), doubles(Type::kFloat64, {2, 8});
  Array halves(Type::kFloat16, {8}), seven(Type::kFloat32, {7}), two(Type::kFloat32, {2, 8});
  Array gaps(Type::kFloat32, {8}, {2}), elsewhere(Type::kFloat32, {2, 8}),
      other(Type::kFloat32, {8, 2});
  Array odd(Type::kFloat32, {2, 8}), odd_weight(Type::kFloat32, {8}),
      half_x(Type::kFloat16, {2, 8});
  elsewhere.tensor()->device = {OPDOCK_CUDA, 0};
  odd.tensor()->byte_offset = 1;
  odd_weight.tensor()->byte_offset = 2;
  auto plain = [](const opdock_value& x_value, const opdock_value& weight = none(),
                  const opdock_value& bias = none(), double eps = 1e-5,
                  int32_t device = OPDOCK_CPU) {
    return layer_norm().plan({x_value, weight, bias, number(eps)}, device);
  };
  auto add = [&](const opdock_value& residual) {
    return add_layer_norm().plan({x.value(), residual, none(), none(), number(1e-5)});
  };
  expect_refused({
      {plain(integers.value()), "'x'", "int32"},
      {plain(doubles.value(), none(), none(), 1e-5, OPDOCK_CUDA), "'x'", "float64"},
      {plain(scalar.value()), "'x'", "0 dimensions"},
      {plain(columns.value()), "'x'", "strides [1, 8]"},
      {plain(odd.value()), "'x'", "address"},
      {plain(x.value(), halves.value()), "'weight'", "float16"},
      {plain(x.value(), seven.value()), "'weight'", "[7]"},
      {plain(x.value(), two.value()), "'weight'", "[2, 8]"},
      {plain(x.value(), gaps.value()), "'weight'", "strides [2]"},
      {plain(x.value(), odd_weight.value()), "'weight'", "address"},
      {plain(x.value(), none(), seven.value()), "'bias'", "[7]"},
      {plain(x.value(), none(), halves.value()), "'bias'", "float16"},
      {plain(x.value(), none(), none(), -1.0), "'eps'", "-1"},
      {plain(x.value(), none(), none(), NAN), "'eps'", "nan"},
      {add(other.value()), "'residual'", "[8, 2]"},
      {add(half_x.value()), "'residual'", "float16"},
      {add(elsewhere.value()), "'residual'", "cuda:0"},
      {add(odd.value()), "'residual'", "address"},
  });
}

TEST(NormRefuses, OutputsThatOverlap) {
  Array x(Type::kFloat32, {2, 8}), residual(Type::kFloat32, {2, 8}), out(Type::kFloat32, {2, 8});
  Array weight(Type::kFloat32, {8});
  x.fill(1);
  residual.fill(2);
  weight.fill(3);
  Result result = add_layer_norm().call({x.value(), residual.value(), none(), none(), number(1e-5)},
                                        {&out, &out});
  EXPECT_EQ(result.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(result.text.find("output 1: "), std::string::npos) << result.text;
  Array shifted(Type::kFloat32, {2, 8});
  shifted.tensor()->data = x.tensor()->data;
  shifted.tensor()->byte_offset = 4;
  result = layer_norm().call({x.value(), none(), none(), number(1e-5)}, {&shifted});
  EXPECT_EQ(result.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(result.text.find("'x'"), std::string::npos) << result.text;
  out.tensor()->data = weight.tensor()->data;
  result = layer_norm().call({x.value(), weight.value(), none(), number(1e-5)}, {&out});
  EXPECT_EQ(result.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(result.text.find("'weight'"), std::string::npos) << result.text;
}

TEST(NormPlan, FollowsItsShapeRules) {
  Array x(Type::kFloat16, {4, 3, 6}, {100, 10, 1});
  x.tensor()->data = reinterpret_cast<void*>(64);  // a pointer that must never be read
  const opdock_value shape_only = x.value(OPDOCK_VALUE_NO_DATA);
  const Result result =
      add_layer_norm().plan({shape_only, shape_only, none(), none(), number(1e-5)});
  ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
  ASSERT_EQ(result.planned.size(), 2u);
  for (const opdock_output& out : result.planned) {
    EXPECT_EQ(std::vector<int64_t>(out.shape, out.shape + out.ndim),
              (std::vector<int64_t>{4, 3, 6}));
  }
}

}  // namespace
}  // namespace opdock_test::norm_plugin
