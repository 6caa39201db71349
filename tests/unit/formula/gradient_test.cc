// Tests gradients against differences of the evaluator's results, and at the ends of the numbers
// against PyTorch's.
// SPDX-License-Identifier: Apache-2.0
#include "formula/gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "arrays.h"
#include "formula/rewrite.h"
#include "gradient_edges.h"

namespace opdock::formula {
namespace {

using Shape = std::vector<int64_t>;

Shape broadcast(const std::vector<Array>& arrays) {
  Shape shape;
  for (const Array& array : arrays) {
    if (array.shape.size() > shape.size())
      shape.insert(shape.begin(), array.shape.size() - shape.size(), 1);
    for (size_t i = 0; i < array.shape.size(); ++i) {
      int64_t& size = shape[shape.size() - 1 - i];
      size = std::max(size, array.shape[array.shape.size() - 1 - i]);
    }
  }
  return shape;
}

// Returns the place in a tensor of shape `from` of element `place` of the shape `to`, to which it
// is broadcast.
size_t source(const Shape& from, const Shape& to, size_t place) {
  size_t result = 0, stride = 1;
  for (size_t i = 0; i < from.size(); ++i) {
    const auto size = static_cast<size_t>(from[from.size() - 1 - i]);
    const auto steps = static_cast<size_t>(to[to.size() - 1 - i]);
    if (size != 1) result += place % steps * stride;
    stride *= size;
    place /= steps;
  }
  return result;
}

bool has_columns(const Graph& graph, size_t result) {
  return (graph[graph.results()[result]].extent & kPerColumn) != 0;
}

// Returns the shape of the gradient of a result: that of the space, with one column if the result
// is the same in the whole row.
Shape gradient_shape(const Graph& graph, size_t result, Shape space) {
  if (!has_columns(graph, result) && !space.empty()) space.back() = 1;
  return space;
}

// Returns the number of result `i` for an element of its gradient.
double at(const Graph& graph, size_t i, const Array& result, const Shape& space, size_t place) {
  Shape shape = result.shape;
  if (!has_columns(graph, i) && !space.empty()) shape.push_back(1);
  return result.real[source(shape, gradient_shape(graph, i, space), place)];
}

// Does what gradient.h leaves to the caller.
std::vector<double> sum_for_input(const Gradient& gradient, size_t i, Array found,
                                  const Array& input, Shape space) {
  const bool is_per_column = has_columns(gradient.graph, i);
  if (!is_per_column && !space.empty()) {
    found.shape.push_back(1);
    const bool is_summed =
        input.shape.empty() || gradient.graph.inputs()[gradient.inputs[i]].is_per_row;
    if (is_summed) space.back() = 1;
  }
  std::vector<double> sums(size_of(input.shape));
  for (size_t place = 0; place < size_of(space); ++place)
    sums[source(input.shape, space, place)] += found.real[source(found.shape, space, place)];
  return sums;
}

// Returns how the gradient of an input is summed.
Wanted wanted_of(size_t i, const Array& input, const Shape& space) {
  Wanted wanted;
  wanted.input = i;
  Shape own = input.shape;
  own.insert(own.begin(), space.size() - own.size(), 1);
  if (space.empty()) return wanted;
  wanted.over_columns = input.shape.empty() || (own.back() == 1 && space.back() != 1);
  own.back() = space.back();
  if (own != space) {
    wanted.over_rows = size_of(own) == static_cast<size_t>(space.back());
    wanted.is_partial = !wanted.over_rows;
  }
  wanted.over_rows = wanted.over_rows || input.shape.empty();
  return wanted;
}

// Checks a gradient that the graph itself sums.
void check_sums(const Wanted& wanted, const Array& found, const std::vector<double>& sums) {
  if (wanted.is_partial) return;
  ASSERT_EQ(found.real.size(), sums.size()) << wanted.input;
  for (size_t place = 0; place < sums.size(); ++place)
    EXPECT_NEAR(found.real[place], sums[place], 1e-12 * (1 + std::fabs(sums[place])))
        << wanted.input;
}

// Counts what was compared, for the record.
struct Tally {
  size_t numbers = 0;
  double worst = 0;
  ~Tally() {
    testing::Test::RecordProperty("numbers", static_cast<int>(numbers));
    testing::Test::RecordProperty("worst", std::to_string(worst * 1e12) + "e-12");
  }
};

constexpr double kStep = 1e-3;
// The differences are wrong by that much; the largest error that was seen is 8.5e-11.
constexpr double kTolerance = 2e-10;

// Compares the gradients of all inputs with differences of order 4, for random gradients of the
// results.
void check_graph(const Graph& graph, const std::vector<Array>& inputs, Tally* tally) {
  const Shape space = broadcast(inputs);
  std::vector<Array> arguments = inputs;
  for (size_t i = 0; i < graph.results().size(); ++i)
    arguments.push_back(
        random_floats(gradient_shape(graph, i, space), 77 + static_cast<unsigned>(i)));
  std::vector<size_t> wanted;
  for (size_t i = 0; i < inputs.size(); ++i) wanted.push_back(i);
  const Gradient gradient = differentiate(graph, wanted);
  ASSERT_EQ(gradient.inputs, wanted);
  std::vector<Wanted> how;
  for (size_t i = 0; i < inputs.size(); ++i) how.push_back(wanted_of(i, inputs[i], space));
  const std::vector<Array> summed = evaluate(summed_gradients(graph, how), arguments, {});
  const std::vector<Array> found = evaluate(gradient.graph, arguments, {});
  for (size_t input = 0; input < inputs.size(); ++input) {
    EXPECT_EQ(found[input].type, inputs[input].type);
    const std::vector<double> sums =
        sum_for_input(gradient, input, found[input], inputs[input], space);
    check_sums(how[input], summed[input], sums);
    for (size_t place = 0; place < sums.size(); ++place) {
      double derivative = 0;
      for (const int step : {-2, -1, 1, 2}) {
        std::vector<Array> moved = inputs;
        moved[input].real[place] += step * kStep;
        const double weight = (std::abs(step) == 1 ? 8.0 : -1.0) * (step > 0 ? 1 : -1);
        const std::vector<Array> results = evaluate(graph, moved, {});
        for (size_t i = 0; i < results.size(); ++i) {
          const Array& of_result = arguments[inputs.size() + i];
          for (size_t k = 0; k < of_result.real.size(); ++k)
            derivative +=
                of_result.real[k] * at(graph, i, results[i], space, k) * weight / (12 * kStep);
        }
      }
      const double error =
          std::fabs(sums[place] - derivative) / std::max(1.0, std::fabs(derivative));
      EXPECT_LT(error, kTolerance) << "input " << input << ", element " << place << ": "
                                   << sums[place] << ", wanted " << derivative;
      tally->worst = std::max(tally->worst, error);
      ++tally->numbers;
    }
  }
}

void check(const std::string& text, const std::vector<Array>& inputs, Tally* tally) {
  SCOPED_TRACE(text);
  check_graph(graph_of(text, inputs), inputs, tally);
}

struct Domain {
  const char* name;
  double low, high;
};
constexpr Domain kDomains[] = {
    {"sqrt", 0.3, 4},    {"rsqrt", 0.5, 4},     {"reciprocal", 0.5, 3}, {"log", 0.5, 4},
    {"log2", 0.5, 4},    {"log10", 0.5, 4},     {"log1p", -0.5, 4},     {"asin", -0.7, 0.7},
    {"acos", -0.7, 0.7}, {"acosh", 1.5, 4},     {"atanh", -0.7, 0.7},   {"tan", -1, 1},
    {"pow", 0.5, 3},     {"div", 0.5, 3},       {"atan2", 0.5, 3},      {"hypot", 0.5, 3},
    {"fmod", 0.5, 3},    {"remainder", 0.5, 3}, {"prod", 0.3, 2},
};

Domain domain_of(std::string_view name) {
  for (const Domain& one : kDomains)
    if (one.name == name) return one;
  return {"", -3, 3};
}

// Returns numbers of which no two of different arguments, and none and a whole number, are so close
// that a step passes from one side of a kink to the other.
Array smooth_floats(Shape shape, const Domain& domain, int argument) {
  Array array = random_floats(shape, 11 + static_cast<unsigned>(argument), domain.low, domain.high);
  const size_t columns = static_cast<size_t>(shape.back());
  for (size_t i = 0; i < array.real.size(); ++i) {
    const double share =
        (0.5 + static_cast<double>(argument) + 3 * static_cast<double>(i % columns)) /
        (3.0 * static_cast<double>(columns) + 1);
    array.real[i] = (std::floor(array.real[i] * 4) + share) / 4;
    array.real[i] = std::clamp(array.real[i], domain.low, domain.high);
  }
  return array;
}

TEST(Gradient, OfEachOperation) {
  Tally tally;
  size_t operations = 0;
  for (int i = static_cast<int>(Op::kNegative); i <= static_cast<int>(Op::kAll); ++i) {
    const Op op = static_cast<Op>(i);
    const Operation& what = operation(op);
    if (what.rule == Rule::kCompare || what.rule == Rule::kLogical || what.rule == Rule::kTest ||
        what.rule == Rule::kBits || what.rule == Rule::kShift || what.rule == Rule::kReduceIndex ||
        what.rule == Rule::kReduceBool || what.rule == Rule::kSame)
      continue;
    const std::string name(what.name);
    const Domain domain = domain_of(name);
    const Shape shape = is_reduction(op) ? Shape{20, 5} : Shape{20, 6};
    std::vector<Array> inputs;
    for (int arg = 0; arg < what.arguments; ++arg)
      inputs.push_back(smooth_floats(shape, domain, arg));
    std::string text = name + (what.arguments == 1   ? "(a)"
                               : what.arguments == 2 ? "(a, b)"
                                                     : "(a, b, c)");
    if (op == Op::kWhere) text = "where(a > b, b, a * c)";
    if (op == Op::kFmod || op == Op::kRemainder) {
      // The quotient jumps where it is a whole number: dividends of another divisor stay away.
      for (size_t k = 0; k < inputs[0].real.size(); ++k)
        inputs[0].real[k] = inputs[1].real[k] * (static_cast<double>(k % 7) - 2.6);
    }
    if (op == Op::kFloorDivide) inputs[1] = smooth_floats(shape, {"", 4, 9}, 1);
    check(text, inputs, &tally);
    ++operations;
  }
  EXPECT_EQ(operations, 61U);
}

TEST(Gradient, AtTheEndsOfNumbers) {
  const auto expect = [](double found, double wanted, const std::string& where) {
    // A derivative that underflows counts as 0.
    if (std::isnan(wanted))
      EXPECT_TRUE(std::isnan(found)) << where << ": " << found;
    else if (std::isinf(wanted))
      EXPECT_EQ(found, wanted) << where;
    else
      EXPECT_NEAR(found, wanted, std::max(1e-14 * std::fabs(wanted), 1e-300)) << where;
  };
  const auto gradients = [](const std::string& text, std::vector<Array> inputs) {
    std::vector<size_t> wanted = {0, 1};
    wanted.resize(inputs.size());
    const Gradient gradient = differentiate(graph_of(text, inputs), wanted);
    inputs.push_back(floats(std::vector<double>(inputs[0].real.size(), 1.0)));
    return evaluate(gradient.graph, inputs, {});
  };
  // Returns the number for an element of a result that may be one constant.
  const auto of = [](const Array& array, size_t i) {
    return array.real[array.real.size() == 1 ? 0 : i];
  };
  for (const UnaryEdges& one : kUnaryEdges) {
    const Array found = gradients(std::string(one.name) + "(a)",
                                  {floats({std::begin(kEdges), std::end(kEdges)})})[0];
    for (size_t i = 0; i < std::size(kEdges); ++i)
      expect(of(found, i), one.derivatives[i], one.name + (" at " + std::to_string(kEdges[i])));
  }
  std::vector<double> first, second;
  for (const auto& pair : kEdgePairs) {
    first.push_back(pair[0]);
    second.push_back(pair[1]);
  }
  for (const BinaryEdges& one : kBinaryEdges) {
    const std::vector<Array> found =
        gradients(std::string(one.name) + "(a, b)", {floats(first), floats(second)});
    for (size_t i = 0; i < first.size(); ++i) {
      const std::string where =
          one.name + (" at " + std::to_string(first[i]) + ", " + std::to_string(second[i]));
      expect(of(found[0], i), one.of_first[i], "first of " + where);
      expect(of(found[1], i), one.of_second[i], "second of " + where);
    }
  }
}

TEST(Gradient, OfProductsWithZerosAndInfinities) {
  const auto of_row = [](const std::vector<double>& row) {
    const std::vector<Array> inputs = {floats({1, 3}, row), floats({1, 1}, {2.0})};
    return evaluate(differentiate(graph_of("prod(a)", {inputs[0]}), {0}).graph, inputs, {})[0].real;
  };
  using Numbers = std::vector<double>;
  EXPECT_EQ(of_row({3, 4, 5}), (Numbers{40, 30, 24}));
  EXPECT_EQ(of_row({3, 0, 5}), (Numbers{0, 30, 0}));
  EXPECT_EQ(of_row({0, 0, 5}), (Numbers{0, 0, 0}));
  EXPECT_EQ(of_row({kInf, 4, 5}), (Numbers{40, kInf, kInf}));
  EXPECT_EQ(of_row({kInf, -kInf, 5}), (Numbers{-kInf, kInf, -kInf}));
}

TEST(Gradient, EqualElementsShare) {
  const std::vector<Array> inputs = {floats({2, 4}, {1, 5, 5, 5, 2, 2, 3, 1}),
                                     floats({2, 1}, {6.0, 1.0})};
  const Gradient gradient = differentiate(graph_of("amax(a)", {inputs[0]}), {0});
  EXPECT_EQ(evaluate(gradient.graph, inputs, {})[0].real,
            (std::vector<double>{0, 2, 2, 2, 0, 0, 1, 0}));
}

TEST(Gradient, OfCompositions) {
  Tally tally;
  const Array x = random_floats({3, 5}, 1), y = random_floats({3, 5}, 2);
  const Array w = random_floats({5}, 3), b = random_floats({5}, 4), s = floats({}, {0.7});
  check("softmax(x)", {x}, &tally);
  check("softmax(x * w) * y", {x, w, y}, &tally);
  check("log_softmax(x)", {x}, &tally);
  check("x * rsqrt(mean(x * x) + 1e-6) * w", {x, w}, &tally);
  check("d = x - mean(x)\nd * rsqrt(mean(d * d) + 1e-5) * w + b", {x, w, b}, &tally);
  check("(x - mean(x)) * rsqrt(var(x, correction=1) + 1e-5) * w + b", {x, w, b}, &tally);
  check("logsumexp(x) - sum(x * y)", {x, y}, &tally);
  check("gelu(x) * y", {x, y}, &tally);
  check("gelu(x, approximate=\"tanh\") * y", {x, y}, &tally);
  check("silu(x) * y", {x, y}, &tally);
  check("where(x > y, x * x, sin(y)) + clamp(x, min=-0.53, max=0.71)", {x, y}, &tally);
  check("maximum(x, y) - minimum(x, w)", {x, y, w}, &tally);
  check("x / amax(abs(x))", {x}, &tally);
  check("m = amax(abs(x))\nx / (m * sqrt(sum((x / m) * (x / m))))", {x}, &tally);
  check("sum(x * (x - mean(x)) * sum(exp(x)))", {x}, &tally);
  check("lerp(x, y, w) * sigmoid(x)", {x, y, w}, &tally);
  check("n = sqrt(sum(x * x))\nreturn x / n, n, n * y", {x, y}, &tally);
  check("floor(x) * x + sign(w) * w", {x, w}, &tally);
  check("x ** 3 + x ** 2 + 2 ** y", {x, y}, &tally);
  check("x * row() + column() * s", {x, s}, &tally);
}

// Values that are the same in the whole row, or everywhere, and are used with ones that are not.
TEST(Gradient, OfWhatIsTheSameInTheRow) {
  Tally tally;
  const Array x = random_floats({3, 5}, 1), w = random_floats({5}, 3);
  const Array s = floats({}, {0.7}), t = floats({}, {-0.4});
  check("x * s", {x, s}, &tally);
  check("x + s", {x, s}, &tally);
  check("sum(x + s)", {x, s}, &tally);
  check("s * sum(x)", {s, x}, &tally);
  check("x * s + s * sum(x)", {x, s}, &tally);
  check("e = exp(s)\nx * e + sin(e) * mean(x * e)", {x, s}, &tally);
  check("return x + s, sum(x) * s, s", {x, s}, &tally);
  check("sum(x + w)", {x, w}, &tally);
  check("x - mean(w)", {x, w}, &tally);
  check("x * mean(w * s) + exp(w)", {x, w, s}, &tally);
  check("return exp(w), x * w", {w, x}, &tally);
  check("m = mean(x)\nsum(w - m)", {x, w}, &tally);
  check("m = mean(x)\nreturn sum(x - m) * m, m", {x}, &tally);
  check("m = mean(x)\nr = rsqrt(mean(x * x))\nreturn x - m, w + m, (x + m) * r, w * m", {x, w},
        &tally);
  check("sum(tanh(x - mean(x)) * w)", {x, w}, &tally);
  check("w * exp(w) * s", {w, s}, &tally);
  check("sum(w * s) * w", {w, s}, &tally);
  check("sum(w * s)", {w, s}, &tally);
  check("s * t + sin(s)", {s, t}, &tally);
  check("x * r + sum(x * r)", {random_floats({2, 3, 4}, 5), random_floats({2, 1, 1}, 6)}, &tally);
  check("x * w * w + y",
        {random_floats({2, 1, 4}, 5), random_floats({4}, 6), random_floats({2, 3, 4}, 7)}, &tally);
}

TEST(Gradient, OfGradients) {
  Tally tally;
  const Array x = random_floats({3, 5}, 1), w = random_floats({5}, 3);
  const Array grad = random_floats({3, 5}, 8), row = random_floats({3, 1}, 9);
  const auto twice = [&](const std::string& text, const std::vector<Array>& inputs, Array given) {
    SCOPED_TRACE(text);
    std::vector<size_t> wanted = {0, 1};
    wanted.resize(inputs.size());
    Graph gradient = differentiate(graph_of(text, inputs), wanted).graph;
    std::vector<Array> all = inputs;
    all.push_back(std::move(given));
    check_graph(gradient, all, &tally);
  };
  twice("tanh(x) * w", {x, w}, grad);
  twice("x * rsqrt(mean(x * x) + 1e-6) * w", {x, w}, grad);
  twice("logsumexp(x)", {x}, row);
  twice("sqrt(sum(x * x))", {x}, row);
  twice("softmax(x)", {x}, grad);
}

size_t count(const Graph& graph, Op op) {
  return static_cast<size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                           [&](const Node& node) { return node.op == op; }));
}
size_t reductions(const Graph& graph) {
  return static_cast<size_t>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(),
                    [](auto& node) { return !is_leaf(node.op) && is_reduction(node.op); }));
}

Gradient gradient_of(const std::string& text, const std::vector<Array>& inputs,
                     const std::vector<size_t>& wanted, bool is_exact = false) {
  return differentiate(graph_of(text, inputs, is_exact), wanted);
}

TEST(Gradient, ComputesLittle) {
  const Array x = random_floats({3, 5}, 1), w = random_floats({5}, 3), s = floats({}, {0.7});
  // The mean, and four that need only the mean: the variance and three sums.
  const Graph layer_norm =
      gradient_of("d = x - mean(x)\nd * rsqrt(mean(d * d) + 1e-5) * w", {x, w}, {0, 1}).graph;
  EXPECT_EQ(reductions(layer_norm), 5U);
  EXPECT_EQ(count(layer_norm, Op::kDiv), 2U);  // by columns(), for the row
  const Graph rms_norm = gradient_of("x * rsqrt(mean(x * x) + 1e-6) * w", {x, w}, {0, 1}).graph;
  EXPECT_EQ(reductions(rms_norm), 2U);
  EXPECT_EQ(count(gradient_of("x / y", {x, x}, {0, 1}).graph, Op::kDiv), 2U);
  EXPECT_EQ(count(gradient_of("x / sum(x)", {x}, {0}).graph, Op::kDiv), 1U);  // x / sum(x) itself
  // The sum of g * (1 + y * y) is one sum.
  EXPECT_EQ(reductions(gradient_of("tan(x - mean(x))", {x}, {0}).graph), 2U);
  // The row's maximum, by which softmax is shifted, has no gradient: only the sums of the result
  // and of the gradient are left.
  EXPECT_EQ(reductions(gradient_of("softmax(x)", {x}, {0}).graph), 3U);
  EXPECT_EQ(reductions(gradient_of("log_softmax(x)", {x}, {0}).graph), 3U);
  // Sums that the caller makes anyway are left to it.
  EXPECT_EQ(reductions(gradient_of("exp(s) * x", {s, x}, {0}).graph), 0U);
  EXPECT_EQ(reductions(gradient_of("x * w", {x, w}, {0, 1}).graph), 0U);
  // Nodes that no gradient needs are not computed.
  EXPECT_EQ(gradient_of("x + exp(w)", {x, w}, {0}).graph.size(), 1);
}

TEST(Gradient, DoesNotPassDetach) {
  const Array x = random_floats({2, 3}, 1), g = random_floats({2, 3}, 2);
  const Gradient first = gradient_of("x * x.exp().detach()", {x}, {0});
  EXPECT_EQ(count(first.graph, Op::kMul), 1U);
  const std::vector<double> found = evaluate(first.graph, {x, g}, {})[0].real;
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], g.real[i] * std::exp(x.real[i]));
  // Nor does the gradient of the gradient.
  EXPECT_EQ(count(differentiate(first.graph, {0}).graph, Op::kConstant), 1U);
  // Kernels know nothing of it, and numbers and integers need none.
  EXPECT_EQ(with_plain_reductions(graph_of("sin(x.detach())", {x})).key(),
            graph_of("sin(x)", {x}).key());
  EXPECT_EQ(graph_of("x.to(int8).detach() * detach(3)", {x}).key(),
            graph_of("x.to(int8) * 3", {x}).key());
}

TEST(Gradient, ScaledNumbersStayScaled) {
  const Array x = floats({1, 3}, {3e200, -1e200, 2e200});
  const std::vector<Array> inputs = {x, floats({1, 3}, {1, 2, -1})};
  const Gradient gradient =
      gradient_of("m = amax(abs(x))\nx / (m * sqrt(sum((x / m) * (x / m))))", {x}, {0});
  const std::vector<Array> found = evaluate(gradient.graph, inputs, {});
  for (const double number : found[0].real) EXPECT_TRUE(std::isfinite(number)) << number;
}

TEST(Gradient, IsAbsentBehindStepsAndIntegers) {
  const Array x = random_floats({2, 3}, 1), s = floats({}, {0.7});
  for (const char* text : {"floor(x)", "x.to(int32).float()", "(x > 0).float()", "sign(x)",
                           "argmax(x).float()", "where(x, 1.0, 2.0)", "x // x"}) {
    SCOPED_TRACE(text);
    const Gradient gradient = gradient_of(text, {x}, {0});
    ASSERT_EQ(gradient.graph.size(), 1);
    const Node& node = gradient.graph[gradient.graph.results()[0]];
    EXPECT_EQ(node.op, Op::kConstant);
    EXPECT_EQ(node.type, Type::kFloat64);
    EXPECT_EQ(node.value.real, 0);
  }
  // The part that is smooth counts, and infinity is not multiplied by 0.
  const Gradient gradient = gradient_of("x * floor(x / 0.0) + s * 0.0", {x, s}, {0});
  EXPECT_EQ(count(gradient.graph, Op::kAdd), 0U);
  // Integers are no inputs to differentiate for.
  const Array i = integers({1, 2, 3});
  EXPECT_EQ(gradient_of("i * x", {i, x}, {0, 1}).inputs, (std::vector<size_t>{1}));
  EXPECT_THROW(gradient_of("x * x", {x}, {1}), Error);
}

TEST(Gradient, HasTheTypesOfTheInputs) {
  const Array x = random_floats({2, 3}, 1, -2, 2, Type::kFloat16);
  const Array y = random_floats({2, 3}, 2, -2, 2, Type::kFloat32);
  const Array w = random_floats({3}, 3, -2, 2, Type::kBfloat16);
  const Array s = floats({}, {0.7});
  const Gradient gradient =
      gradient_of("return x * y * s, sum(x * w), x > y", {x, y, s, w}, {0, 1, 2, 3});
  const Type wanted[] = {Type::kFloat16, Type::kFloat32, Type::kFloat64, Type::kBfloat16};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(gradient.graph[gradient.graph.results()[i]].type, wanted[i]) << i;
  const std::vector<Input>& inputs = gradient.graph.inputs();
  ASSERT_EQ(inputs.size(), 7U);
  EXPECT_EQ(inputs[4].name, "grad_0");
  EXPECT_EQ(inputs[4].type, Type::kFloat32);
  EXPECT_FALSE(inputs[4].is_per_row);
  EXPECT_EQ(inputs[5].name, "grad_1");
  EXPECT_TRUE(inputs[5].is_per_row);
  EXPECT_EQ(inputs[6].type, Type::kBool);
  EXPECT_NE(graph_of("x", {y}).key(), [] {
    Graph graph;
    graph.add_result(graph.input("x", Type::kFloat32, 2, true));
    return graph.key();
  }());
  EXPECT_EQ(gradient_of("x * grad", {y, y}, {0}).graph.inputs()[2].name, "grad_grad");
}

TEST(Gradient, RoundsOnlyWhereTheFormulaConverts) {
  const Array x = floats({1, 2}, {1, 3}, Type::kFloat16);
  const Array y = floats({1, 2}, {1.25, 3}, Type::kFloat32);
  const auto of = [](const std::string& text, const std::vector<Array>& inputs, Type type,
                     bool is_exact) {
    std::vector<Array> all = inputs;
    all.push_back(floats({1, 2}, {2049, 0.1}, type));
    return evaluate(gradient_of(text, inputs, {0}, is_exact).graph, all, {})[0].real;
  };
  using Numbers = std::vector<double>;
  EXPECT_EQ(of("x * y", {x, y}, Type::kFloat32, false), (Numbers{2049 * 1.25, 0.1 * 3}));
  EXPECT_EQ(of("x.float()", {x}, Type::kFloat32, false), (Numbers{2048, 0.0999755859375}));
  EXPECT_EQ(of("x + y", {x, y}, Type::kFloat32, true), (Numbers{2048, 0.0999755859375}));
  EXPECT_EQ(of("y.half() * y", {y}, Type::kFloat32, false)[0], 2049 * 1.25 * 2);
}

// Inputs with one element that all columns share, in results with one number a row: the gradient is
// the same for each column.
TEST(Gradient, SumsOfWhatAColumnRepeats) {
  Tally tally;
  const Array x = random_floats({3, 4}, 1);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}, Shape{3, 1}, Shape{4}, Shape{1, 4}}) {
    const std::vector<Array> inputs = {x, random_floats(shape, 2)};
    check_graph(graph_of("sum(x + s)", inputs), inputs, &tally);
    check_graph(graph_of("mean(x * s) + s * logsumexp(x)", inputs), inputs, &tally);
  }
}

}  // namespace
}  // namespace opdock::formula
