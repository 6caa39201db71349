// Tests sums over rows in the compiled CPU code of gradients against the interpreter's.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "compiled.h"
#include "formula/formula.h"
#include "formula/gradient.h"

namespace opdock::formula {
namespace {

struct SumsCase {
  const char* text;
  // The type of each tensor, in the order of first use, and its dimensions: 2, 1 for one that is
  // the same in all rows, 0 for one number.
  std::vector<std::pair<Type, int>> tensors;
};
const SumsCase kCases[] = {
    {"relu(x + b)", {{Type::kFloat32, 2}, {Type::kFloat32, 1}}},
    {"silu(x + b) * s", {{Type::kFloat16, 2}, {Type::kFloat16, 1}, {Type::kFloat16, 0}}},
    {"gelu_tanh(x * s)", {{Type::kFloat64, 2}, {Type::kFloat64, 0}}},
    {"x * rsqrt(mean(x * x) + 1e-5) * w + b",
     {{Type::kFloat32, 2}, {Type::kFloat32, 1}, {Type::kFloat32, 1}}},
    // The gradient of s is a number for each row before it is a total.
    {"return s * sum(x), x + b", {{Type::kFloat32, 0}, {Type::kFloat32, 2}, {Type::kFloat32, 1}}},
};

Graph gradients_of(const SumsCase& one) {
  std::vector<Argument> arguments;
  for (const auto& [type, rank] : one.tensors) {
    Argument argument;
    argument.type = type;
    argument.rank = rank;
    arguments.push_back(argument);
  }
  const Graph graph = Formula(one.text).graph(arguments);
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    wanted.push_back({i, graph.inputs()[i].rank < 2, graph.inputs()[i].rank == 0, false});
  return summed_gradients(graph, wanted);
}

// Results, and the sums of chunks of rows before they are added up.
struct Found {
  std::vector<Tensor> results;
  std::vector<double> partial;
};

// Computes a graph by its code, or by the interpreter without one, in so many parts.
Found compute(const Graph& graph, opdock_formula_function code, std::vector<Tensor>* inputs,
              const std::vector<int64_t>& shape, int64_t parts) {
  Found found;
  for (size_t i = 0; i < graph.results().size(); ++i)
    found.results.emplace_back(graph[graph.results()[i]].type, result_shape(graph, i, shape));
  std::vector<Operand> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (Tensor& input : *inputs) {
    in.push_back(input.operand());
    from.push_back(input.data());
  }
  for (Tensor& result : found.results) {
    out.push_back(result.operand());
    to.push_back(result.data());
  }
  const Space space = make_space(graph, in, out);
  const Interpreter interpreter(graph);
  found.partial.assign(static_cast<size_t>(interpreter.partial_bytes(space)) / sizeof(double),
                       std::numeric_limits<double>::quiet_NaN());
  CpuCall call(space, from.data(), to.data(), nullptr, 0);
  call.set_sums(interpreter.sums(space, found.partial.data()));
  const int64_t pieces = interpreter.pieces(space);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = pieces * part / parts, end = pieces * (part + 1) / parts;
    if (code != nullptr)
      code(call.get(), begin, end);
    else
      interpreter.run(space, from.data(), to.data(), nullptr, begin, end, found.partial.data());
  }
  interpreter.add_sums(space, found.partial.data(), to.data(), 0, interpreter.sum_pieces(space));
  return found;
}

// In how many columns a row is added up depends on the code, so that sums along rows may differ in
// their last digits, and what is computed with them. All else is equal, bit by bit.
void check(const Graph& graph, Found* found, Found* wanted, const std::string& what) {
  for (size_t i = 0; i < found->results.size(); ++i) {
    const bool is_exact = !graph.has_reductions() && graph.output(i) != Output::kTotal;
    Tensor &a = found->results[i], &b = wanted->results[i];
    for (int64_t k = 0; k < a.numel(); ++k) {
      const long double got = a.get(k).real, want = b.get(k).real;
      const long double most = is_exact ? 0 : 1e-5L * (1 + std::fabs(want));
      ASSERT_LE(std::fabs(got - want), most) << what << ", result " << i << " at " << k;
    }
  }
  for (size_t k = 0; k < found->partial.size(); ++k)
    ASSERT_NEAR(found->partial[k], wanted->partial[k], 1e-4 * (1 + std::fabs(wanted->partial[k])))
        << what << ", sum " << k;
}

TEST(CpuSums, AreThoseOfTheInterpreter) {
  std::vector<Graph> graphs;
  for (const SumsCase& one : kCases) graphs.push_back(gradients_of(one));
  const Compiled compiled(graphs);
  std::mt19937 random(3);
  struct Shape {
    int64_t rows, columns;
    bool is_transposed;
  };
  // Narrow rows are computed several at a time; long ones have several pieces, and many several
  // chunks.
  const Shape shapes[] = {{1, 1, false},   {301, 3, false},   {37, 16, false},
                          {37, 50, true},  {5000, 40, false}, {19, 1003, false},
                          {70, 300, true}, {3, 40000, false}, {33, 20000, false}};
  for (size_t g = 0; g < graphs.size(); ++g) {
    const Graph& graph = graphs[g];
    ASSERT_TRUE(graph.has_sums());
    ASSERT_NE(compiled.function(g), nullptr);
    for (const auto& [rows, columns, is_transposed] : shapes) {
      std::vector<Tensor> inputs;
      for (const Input& input : graph.inputs()) {
        std::vector<int64_t> shape = {rows, input.is_per_row ? 1 : columns};
        std::vector<int64_t> strides = Tensor::contiguous(shape);
        if (is_transposed && input.rank == 2) strides = {1, rows};
        shape.erase(shape.begin(), shape.end() - input.rank);
        strides.erase(strides.begin(), strides.end() - input.rank);
        inputs.emplace_back(input.type, shape, strides);
        randomize(&inputs.back(), &random, true);
      }
      const std::string what =
          std::string(kCases[g].text) + ", " + std::to_string(rows) + "x" + std::to_string(columns);
      Found wanted = compute(graph, nullptr, &inputs, {rows, columns}, 1);
      Found found = compute(graph, compiled.function(g), &inputs, {rows, columns}, 1);
      check(graph, &found, &wanted, what);
      if (HasFatalFailure()) return;
      // The number of threads does not change the results.
      Found again = compute(graph, compiled.function(g), &inputs, {rows, columns}, 3);
      for (size_t i = 0; i < found.results.size(); ++i)
        ASSERT_EQ(again.results[i].bytes, found.results[i].bytes) << what;
      ASSERT_EQ(again.partial, found.partial) << what;
    }
  }
}

}  // namespace
}  // namespace opdock::formula
