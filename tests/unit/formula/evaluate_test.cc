// Tests the evaluator, whose results other tests take for granted: known values, and PyTorch's
// results where numbers end (NaN, infinity, division by 0, the ends of integer types).
// SPDX-License-Identifier: Apache-2.0
#include "formula/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "arrays.h"

namespace opdock::formula {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

void expect_floats(const Array& found, const std::vector<double>& wanted, double tolerance = 0) {
  ASSERT_EQ(found.real.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(found.real[i])) << "element " << i << ": " << found.real[i];
    } else if (std::isinf(wanted[i]) || tolerance == 0) {
      EXPECT_EQ(found.real[i], wanted[i]) << "element " << i;
      EXPECT_EQ(std::signbit(found.real[i]), std::signbit(wanted[i])) << "element " << i;
    } else {
      EXPECT_NEAR(found.real[i], wanted[i], tolerance * std::fabs(wanted[i])) << "element " << i;
    }
  }
}

struct Known {
  const char* text;
  double argument, value;
};
// The digits are those of mathematical tables, but for NaN and infinity, where PyTorch's results
// count.
constexpr Known kKnown[] = {
    {"-x", 1.5, -1.5},
    {"-x", 0, -0.0},
    {"abs(x)", -kInf, kInf},
    {"sign(x)", -0.5, -1},
    {"sign(x)", kNan, 0},
    {"sign(x)", 0, 0},
    {"detach(x)", -0.5, -0.5},
    {"relu(x)", -3, 0},
    {"relu(x)", 3, 3},
    {"relu(x)", kNan, kNan},
    {"floor(x)", -1.5, -2},
    {"ceil(x)", -1.5, -1},
    {"trunc(x)", -1.5, -1},
    {"round(x)", 0.5, 0},
    {"round(x)", 1.5, 2},
    {"round(x)", 2.5, 2},
    {"round(x)", -0.5, -0.0},
    {"round(x)", -2.5, -2},
    {"sqrt(x)", 2, 1.4142135623730951},
    {"sqrt(x)", -1, kNan},
    {"rsqrt(x)", 0, kInf},
    {"rsqrt(x)", 4, 0.5},
    {"reciprocal(x)", -0.0, -kInf},
    {"exp(x)", 1, 2.718281828459045},
    {"exp(x)", -kInf, 0},
    {"exp2(x)", 0.5, 1.4142135623730951},
    {"expm1(x)", 1e-10, 1.00000000005e-10},
    {"log(x)", 10, 2.302585092994046},
    {"log(x)", 0, -kInf},
    {"log2(x)", 10, 3.321928094887362},
    {"log10(x)", 2, 0.3010299956639812},
    {"log1p(x)", 1e-10, 9.9999999995e-11},
    {"sin(x)", 1, 0.8414709848078965},
    {"sin(x)", kInf, kNan},
    {"cos(x)", 1, 0.5403023058681398},
    {"tan(x)", 1, 1.5574077246549023},
    {"asin(x)", 0.5, 0.5235987755982989},
    {"asin(x)", 1.5, kNan},
    {"acos(x)", 0.5, 1.0471975511965979},
    {"atan(x)", kInf, 1.5707963267948966},
    {"sinh(x)", 1, 1.1752011936438014},
    {"cosh(x)", 1, 1.543080634815244},
    {"tanh(x)", 1, 0.7615941559557649},
    {"asinh(x)", 1, 0.881373587019543},
    {"acosh(x)", 2, 1.3169578969248166},
    {"atanh(x)", 0.5, 0.5493061443340549},
    {"erf(x)", 1, 0.8427007929497149},
    {"erfc(x)", 3, 2.209049699858544e-05},
    {"sigmoid(x)", 2, 0.8807970779778823},
    {"sigmoid(x)", -800, 0},
    {"silu(x)", 2, 1.7615941559557649},
    {"silu(x)", -kInf, kNan},
    {"softplus(x)", 0, 0.6931471805599453},
    {"softplus(x)", 20, 20.000000002061153},
    {"softplus(x)", 20.5, 20.5},
    {"softplus(x)", -kInf, 0},
    {"gelu(x)", 1, 0.8413447460685429},
    {"gelu(x)", -3, -0.004049694094890284},
    {"gelu(x)", kInf, kInf},
    {"gelu(x)", -kInf, kNan},
    {"gelu(x, approximate=\"tanh\")", 1, 0.8411919906082768},
    {"gelu(x, approximate=\"tanh\")", -3, -0.003637392081773022},
    {"x ** 4", -1.5, 5.0625},
    {"x ** 0", kNan, 1},
    {"x ** 0.25", -1, kNan},
    {"clamp(x, min=-1, max=1)", 3, 1},
    {"clamp(x, min=-1, max=1)", -3, -1},
    {"clamp(x, min=-1, max=1)", kNan, kNan},
    {"maximum(x, 1)", kNan, kNan},
    {"minimum(x, 1)", kNan, kNan},
    {"atan2(x, -1)", -0.0, -3.141592653589793},
    {"hypot(x, 4)", 3, 5},
    {"copysign(x, -0.0)", 2, -2},
    {"logaddexp(x, 1)", 1, 1.6931471805599454},
    {"logaddexp(x, 1)", -kInf, 1},
    {"logaddexp(x, x)", -kInf, -kInf},
    {"logaddexp(x, 1)", kNan, kNan},
    {"logaddexp(x, 0)", 1000, 1000},
    {"fma(x, x, -1.0)", 1 + 0x1p-30, 0x1p-29 + 0x1p-60},
};

TEST(Evaluate, KnownValues) {
  for (const Known& known : kKnown) {
    SCOPED_TRACE(std::string(known.text) + " at " + std::to_string(known.argument));
    expect_floats(run(known.text, {floats({known.argument})})[0], {known.value},
                  known.value == std::rint(known.value) && known.value < 1e3 ? 0 : 1e-14);
  }
}

TEST(Evaluate, TailsKeepTheirDigits) {
  // The asymptotic series of the normal distribution, whose first dropped term is 6e-8 at -40.
  const double x = -30, density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  const double s = 1 / (x * x);
  const double tail = density / -x * (1 - s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s))));
  expect_floats(run("gelu(x)", {floats({x})})[0], {x * tail}, 1e-9);
  EXPECT_LT(run("gelu_tanh(x)", {floats({-6.0})})[0].real[0], 0);
}

TEST(Evaluate, NumbersThatATensorChoosesAreOfTheDefaultType) {
  EXPECT_EQ(run("where(x > 0, 1.0, 2)", {floats({1.0})})[0].type, Type::kFloat32);
  EXPECT_EQ(run("where(x > 0, 1, 2)", {floats({1.0})})[0].type, Type::kInt64);
  EXPECT_EQ(run("where(x > 0, x, 2)", {floats({1.0})})[0].type, Type::kFloat64);
}

TEST(Evaluate, RemaindersOfFloats) {
  const Array a = floats({5, -5, 5, -5, 1, -1, kInf, 1, 0, -0.0, 5});
  const Array b = floats({3, 3, -3, -3, kInf, kInf, 2, 0, -3, 3, kNan});
  expect_floats(run("a % b", {a, b})[0], {2, 1, -1, -2, 1, kInf, kNan, kNan, 0, -0.0, kNan});
  expect_floats(run("a // b", {a, b})[0], {1, -2, -2, 1, 0, -1, kNan, kInf, -0.0, -0.0, kNan});
  expect_floats(run("fmod(a, b)", {a, b})[0], {2, -2, 2, -2, 1, -1, kNan, kNan, 0, -0.0, kNan});
  // 0.1 is a bit more than a tenth: the quotient, which rounds to 10, is less.
  expect_floats(run("a // b", {floats({1.0}), floats({0.1})})[0], {9});
  expect_floats(run("a // b", {floats({-1.0}), floats({0.0})})[0], {-kInf});
}

TEST(Evaluate, DivisionOfIntegers) {
  const Array a = integers({7, -7, 7, -7, 7, kMin, 0});
  const Array b = integers({2, 2, -2, -2, 0, -1, 5});
  EXPECT_EQ(run("a // b", {a, b})[0].integer, (std::vector<int64_t>{3, -4, -4, 3, 0, kMin, 0}));
  EXPECT_EQ(run("a % b", {a, b})[0].integer, (std::vector<int64_t>{1, 1, -1, -1, 0, 0, 0}));
  EXPECT_EQ(run("fmod(a, b)", {a, b})[0].integer, (std::vector<int64_t>{1, -1, 1, -1, 0, 0, 0}));
  const Array quotient = run("a / b", {a, b})[0];
  EXPECT_EQ(quotient.type, Type::kFloat32);
  EXPECT_EQ(quotient.real[0], 3.5);
  EXPECT_EQ(quotient.real[4], kInf);
}

TEST(Evaluate, IntegersWrap) {
  EXPECT_EQ(run("a + 1", {integers({255}, Type::kUint8)})[0].integer[0], 0);
  EXPECT_EQ(run("-a", {integers({1}, Type::kUint8)})[0].integer[0], 255);
  EXPECT_EQ(run("~a", {integers({1}, Type::kUint8)})[0].integer[0], 254);
  EXPECT_EQ(run("abs(a)", {integers({-128}, Type::kInt8)})[0].integer[0], -128);
  EXPECT_EQ(run("a * a", {integers({300}, Type::kInt16)})[0].integer[0], 24464);
  EXPECT_EQ(run("a - 1", {integers({-2147483648}, Type::kInt32)})[0].integer[0], 2147483647);
  EXPECT_EQ(run("abs(a) + -a", {integers({kMin})})[0].integer[0], 0);
  EXPECT_EQ(run("a + 1", {integers({kMax})})[0].integer[0], kMin);
  EXPECT_EQ(run("a.to(int8)", {floats({200.7})})[0].integer[0], -56);
  EXPECT_EQ(run("a.to(int64)", {floats({-1.9, kInf, kNan})})[0].integer,
            (std::vector<int64_t>{-1, kMax, 0}));
  // Constants are converted when the graph is made, and likewise.
  const auto constant = [](const char* text) {
    const Graph graph = graph_of(text, {});
    EXPECT_EQ(graph.size(), 1) << text;
    return graph[0].value.integer;
  };
  EXPECT_EQ(constant("inf.to(int64)"), kMax);
  EXPECT_EQ(constant("(-inf).to(int64)"), kMin);
  EXPECT_EQ(constant("nan.to(int64)"), 0);
  EXPECT_EQ(constant("to(9223372036854775808.0, int64)"), kMax);
  EXPECT_EQ(constant("to(-9223372036854775808.0, int64)"), kMin);
  EXPECT_EQ(constant("to(1e300, int32)"), -1);
  EXPECT_EQ(constant("to(-1.9, int8)"), -1);
}

TEST(Evaluate, PowersOfIntegers) {
  const Array a = integers({2, 1, -1, -1, 0, 0, 3, -2}, Type::kInt32);
  const Array b = integers({-1, -5, -3, -4, -1, 0, 21, 31}, Type::kInt32);
  EXPECT_EQ(run("a ** b", {a, b})[0].integer,
            (std::vector<int64_t>{0, 1, -1, 1, 0, 1, 1870418611, -2147483648}));
}

TEST(Evaluate, ShiftsByTooMuch) {
  const Array a = integers({1, 1, -1, 1, 3}, Type::kInt32);
  const Array count = integers({31, 32, -1, 40, 1}, Type::kInt32);
  EXPECT_EQ(run("a << b", {a, count})[0].integer, (std::vector<int64_t>{-2147483648, 0, 0, 0, 6}));
  const Array b = integers({5, -5, -5, 5, -5}, Type::kInt32);
  EXPECT_EQ(run("a >> b", {b, integers({32, 32, -1, -1, 1}, Type::kInt32)})[0].integer,
            (std::vector<int64_t>{0, -1, -1, 0, -3}));
  const Array c = integers({255, 255, 255}, Type::kUint8);
  const Array few = integers({7, 8, 4}, Type::kUint8);
  EXPECT_EQ(run("a << b", {c, few})[0].integer, (std::vector<int64_t>{128, 0, 240}));
  EXPECT_EQ(run("a >> b", {c, few})[0].integer, (std::vector<int64_t>{1, 0, 15}));
  EXPECT_EQ(run("a << b", {integers({-1}), integers({63})})[0].integer[0], kMin);
}

TEST(Evaluate, Claims) {
  const Array x = floats({kNan, kInf, -0.0, 2});
  const auto claim = [&](const char* text) { return run(text, {x})[0].integer; };
  using Bools = std::vector<int64_t>;
  EXPECT_EQ(claim("isnan(x)"), (Bools{1, 0, 0, 0}));
  EXPECT_EQ(claim("isinf(x)"), (Bools{0, 1, 0, 0}));
  EXPECT_EQ(claim("isfinite(x)"), (Bools{0, 0, 1, 1}));
  EXPECT_EQ(claim("signbit(x)")[2], 1);
  EXPECT_EQ(claim("x == x"), (Bools{0, 1, 1, 1}));
  EXPECT_EQ(claim("x != x"), (Bools{1, 0, 0, 0}));
  EXPECT_EQ(claim("x >= 2"), (Bools{0, 1, 0, 1}));
  EXPECT_EQ(claim("logical_not(x)"), (Bools{0, 0, 1, 0}));
  EXPECT_EQ(claim("logical_xor(x, 1)"), (Bools{0, 0, 1, 0}));
  EXPECT_EQ(claim("where(x, 1, 2)"), (Bools{1, 1, 2, 1}));
  EXPECT_EQ(run("~(x > 0)", {x})[0].integer, (Bools{1, 0, 1, 0}));
}

TEST(Evaluate, Reductions) {
  const Array x = floats({3, 4}, {1, 4, 2, 3, 0, 0, 5, 5, -1, kNan, kInf, kNan});
  const auto along = [&](const char* text) { return run(text, {x})[0]; };
  EXPECT_EQ(along("sum(x)").shape, (std::vector<int64_t>{3}));
  expect_floats(along("sum(x)"), {10, 10, kNan});
  expect_floats(along("mean(x)"), {2.5, 2.5, kNan});
  expect_floats(along("prod(x)"), {24, 0, kNan});
  expect_floats(along("amax(x)"), {4, 5, kNan});
  expect_floats(along("amin(x)"), {1, 0, kNan});
  EXPECT_EQ(along("argmax(x)").integer, (std::vector<int64_t>{1, 2, 1}));
  EXPECT_EQ(along("argmin(x)").integer, (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(along("any(x > 4)").integer, (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ(along("all(x >= 0)").integer, (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(along("sum(x > 1)").integer, (std::vector<int64_t>{3, 2, 1}));
  const Array y = integers({100, 100, 100, -3}, Type::kInt8);
  EXPECT_EQ(run("sum(x)", {y})[0].integer[0], 297);
  EXPECT_EQ(run("amin(x)", {y})[0].type, Type::kInt8);
  EXPECT_EQ(run("amin(x)", {y})[0].integer[0], -3);
  EXPECT_EQ(run("argmax(x)", {y})[0].integer[0], 0);
  EXPECT_EQ(run("prod(x)", {y})[0].integer[0], -3000000);
}

TEST(Evaluate, LogSumExp) {
  const Array x =
      floats({6, 2}, {1000, 1000, -1000, -1000, -kInf, -kInf, kInf, -kInf, kNan, 1, 0, 1});
  const double log2 = std::log(2.0);
  expect_floats(run("logsumexp(x)", {x})[0],
                {1000 + log2, -1000 + log2, -kInf, kInf, kNan, 1.3132616875182228}, 1e-15);
}

TEST(Evaluate, RowsWithoutElements) {
  const Array x = {Type::kFloat64, {2, 0}, {}, {}};
  expect_floats(run("sum(x)", {x})[0], {0, 0});
  expect_floats(run("prod(x)", {x})[0], {1, 1});
  expect_floats(run("mean(x)", {x})[0], {kNan, kNan});
  expect_floats(run("logsumexp(x)", {x})[0], {-kInf, -kInf});
  EXPECT_EQ(run("all(x)", {x})[0].integer, (std::vector<int64_t>{1, 1}));
  EXPECT_THROW(run("amax(x)", {x}), Error);
  EXPECT_EQ(run("x + 1", {x})[0].shape, (std::vector<int64_t>{2, 0}));
}

TEST(Evaluate, ShapesAreThoseOfTheSpace) {
  const Array x = random_floats({2, 1, 3}, 1), w = random_floats({3}, 2);
  const Array y = random_floats({4, 3}, 3), s = floats({}, {2});
  const std::vector<Array> found =
      run("return x * y, exp(w), sum(x), sum(w), s + 1, column() * s, row() + s, x * sum(y), 1.5",
          {x, y, w, s});
  const bool has_columns[] = {true, true, false, false, false, true, false, true, false};
  const std::vector<int64_t> full = {2, 4, 3}, rows = {2, 4};
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].shape, has_columns[i] ? full : rows) << i;
    EXPECT_EQ(found[i].real.size() + found[i].integer.size(), has_columns[i] ? 24U : 8U) << i;
  }
  EXPECT_EQ(run("1.5, sum(x)", {x})[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(run("1.5", {})[0].shape, std::vector<int64_t>{});
  EXPECT_EQ(found[1].real[1 * 12 + 2 * 3 + 1], std::exp(w.real[1]));
  EXPECT_EQ(found[2].real[1 * 4 + 2], x.real[3] + x.real[4] + x.real[5]);
  EXPECT_EQ(found[0].real[1 * 12 + 2 * 3 + 1], x.real[3 + 1] * y.real[2 * 3 + 1]);
  EXPECT_EQ(found[6].real, (std::vector<double>{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(found[5].real[1 * 12 + 2 * 3 + 2], 4);
  EXPECT_EQ(run("columns()*x", {x})[0].real[4], 3 * x.real[4]);
}

TEST(Evaluate, NumbersOfEachCall) {
  const Formula formula("x * a + n",
                        {{"x"}, {"a", Parameter::Kind::kFloat}, {"n", Parameter::Kind::kInt}});
  Argument x;
  x.type = Type::kInt32;
  x.rank = 1;
  const Graph graph = formula.graph({x, {}, {}});
  const Array result = evaluate(graph, {integers({3, 5}, Type::kInt32)}, {0.5, 2})[0];
  EXPECT_EQ(result.type, Type::kFloat32);
  expect_floats(result, {3.5, 4.5});
}

TEST(Evaluate, ExactGraphsRoundEachNode) {
  const auto once = [](double value, Type type) {
    return run("x + x * 0", {floats({value}, type)}, true)[0].real[0];
  };
  // Halfway between two numbers: to the even one.
  EXPECT_EQ(once(1 + 0x1p-11, Type::kFloat16), 1);
  EXPECT_EQ(once(1 + 0x1.8p-10, Type::kFloat16), 1 + 0x1p-9);
  EXPECT_EQ(once(1 + 0x1.1p-11, Type::kFloat16), 1 + 0x1p-10);
  EXPECT_EQ(once(65519, Type::kFloat16), 65504);
  EXPECT_EQ(once(-65520, Type::kFloat16), -kInf);
  EXPECT_EQ(once(0x1.4p-24, Type::kFloat16), 0x1p-24);
  EXPECT_EQ(once(0x1p-25, Type::kFloat16), 0);
  EXPECT_EQ(once(1 + 0x1p-8, Type::kBfloat16), 1);
  EXPECT_EQ(once(1 + 0x1.8p-7, Type::kBfloat16), 1 + 0x1p-6);
  EXPECT_EQ(once(3.4e38, Type::kBfloat16), kInf);
  EXPECT_EQ(once(0x1p-134, Type::kBfloat16), 0);
  EXPECT_EQ(once(0x1.8p-133, Type::kBfloat16), 0x1p-132);
  EXPECT_EQ(once(0.1, Type::kFloat32), static_cast<double>(0.1F));
  EXPECT_EQ(once(0.1, Type::kFloat64), 0.1);
  const Array x = floats({2049, 1}, Type::kFloat16);
  EXPECT_EQ(run("sum(x)", {x}, true)[0].real[0], 2050);
  EXPECT_EQ(run("sum(x * 1.5)", {x}, true)[0].real[0], 3076);  // 3074 and 1.5, which is 3075.5
  EXPECT_EQ(run("sum(x * 1.5)", {x})[0].real[0], 3075);
}

// PyTorch 2.13: torch.tensor([3.0, 1.0], dtype=torch.float16) * 0.1 is [0.300048828125,
// 0.0999755859375], and by 0.1 rounded to float16 the first would be 0.2998046875.
TEST(Evaluate, ExactGraphsDoNotRoundNumbersThatMeetATensor) {
  const Array x = floats({3, 1}, Type::kFloat16);
  expect_floats(run("x * 0.1", {x}, true)[0], {0.300048828125, 0.0999755859375});
  Argument half;
  half.type = Type::kFloat16;
  half.rank = 1;
  const auto with_number = [&](const char* text) {
    const Formula formula(text, {{"x"}, {"a", Parameter::Kind::kFloat}});
    return evaluate(formula.graph({half, {}}, true), {x}, {0.1})[0];
  };
  expect_floats(with_number("x * a"), {0.300048828125, 0.0999755859375});
  expect_floats(with_number("x / (1 / a)"), {0.300048828125, 0.0999755859375});
  expect_floats(with_number("x * a.half()"), {0.2998046875, 0.0999755859375});
  // The chosen number has the tensor's type.
  expect_floats(with_number("where(x > 2, x, a) * 3"), {9, 0.2998046875});
}

TEST(Evaluate, CastsRoundInEachGraph) {
  const Array x = floats({2049, 0.1}, Type::kFloat32);
  expect_floats(run("x.to(float16)", {x})[0], {2048, 0.0999755859375});
  expect_floats(run("x.to(float16).float() - x", {x})[0], {-1, 0.0999755859375 - 0.1}, 1e-15);
  expect_floats(run("x.float()", {floats({0.1})})[0], {static_cast<double>(0.1F)});
  expect_floats(run("(x * 1.5).half().float()", {floats({3.0001}, Type::kBfloat16)})[0], {4.5});
  // A number of the formula, of which a subnormal one has fewer digits.
  expect_floats(run("x * 0 + to(7.450580596923828e-08, float16)", {floats({1})})[0], {0x1p-24});
  // evaluate() does not round numbers that a kernel has in float32.
  expect_floats(run("(x * x).float()", {floats({0.1}, Type::kFloat16)})[0], {0.1 * 0.1});
}

TEST(Evaluate, RefusesWrongTensors) {
  const Array x = random_floats({2, 3}, 1);
  const Graph graph = graph_of("x + sum(y)", {x, x});
  const auto message = [&](const std::vector<Array>& inputs) -> std::string {
    try {
      evaluate(graph, inputs, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({x}), "found 1 tensors, wanted 2");
  EXPECT_EQ(message({x, random_floats({2, 4}, 1)}),
            "y and the tensors before it: found the shapes [2, 3] and [2, 4], wanted shapes that "
            "can be broadcast: sizes equal, or one of them 1");
  EXPECT_EQ(message({x, random_floats({2, 3}, 1, 0, 1, Type::kFloat32)}),
            "found y: float32, wanted float64");
  EXPECT_EQ(message({x, floats({2, 3}, {1})}),
            "found y: 1 elements, wanted as many as the shape has: 6");
  EXPECT_EQ(message({x, random_floats({2, 1}, 1)}),
            "sum: found an argument with 1 columns, wanted as many as the other tensors have: 3");
  EXPECT_THROW(evaluate(graph_of("x + y", {x, floats({3}, {1, 2, 3})}), {x, x}, {}), Error);
  EXPECT_THROW(evaluate(graph, {x, x}, {1.0}), Error);
}

}  // namespace
}  // namespace opdock::formula
