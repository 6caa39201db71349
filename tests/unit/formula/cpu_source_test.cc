// Tests the compiled CPU code of formulas: every operation, type and layout against the
// interpreter and the float64 evaluator, reductions, conversions, and results in the memory of
// inputs.
// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_source.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "compiled.h"
#include "formula/evaluate.h"
#include "formula/formula.h"
#include "tensors.h"

namespace opdock::formula {
namespace {

constexpr Type kTypes[] = {Type::kBool,    Type::kUint8,  Type::kInt8,    Type::kInt16,
                           Type::kInt32,   Type::kInt64,  Type::kFloat16, Type::kBfloat16,
                           Type::kFloat32, Type::kFloat64};

bool is_nightly() {
  return std::getenv("OPDOCK_TEST_NIGHTLY") != nullptr;
}

// The compiler takes seconds for the code of a type. The others are tested with --nightly: numbers
// of 16 bits are computed as float32, between conversions that are tested for each type.
bool is_tested(Type type) {
  return type == Type::kInt32 || type == Type::kFloat32 || is_nightly();
}

// A shape, and the strides of up to three inputs and the results, of which missing ones are
// contiguous.
struct Form {
  const char* name;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides[4];
};
const Form kForms[] = {
    {"one", {1, 1}, {}},
    {"short", {1, 7}, {}},
    {"long", {2, 1100}, {}},
    {"very long", {2, 20000}, {{20000, 1}, {1, 2}, {0, 1}, {20000, 1}}},
    {"steps", {3, 700}, {{1400, 2}, {-700, -1}, {0, 1}, {2100, 3}}},
    {"rows", {5, 130}, {{1, 5}, {130, 1}, {1, 0}, {131, 1}}},
    {"transposed", {70, 300}, {{1, 70}, {300, 1}, {1, 0}, {300, 1}}},
    {"transposed result", {70, 300}, {{300, 1}, {1, 70}, {0, 0}, {1, 70}}},
    {"narrow", {301, 3}, {{4, 1}, {0, 1}, {3, 1}, {1, 301}}},
    {"many", {2, 3, 4, 5}, {{60, 20, 1, 4}, {1, 2, 6, 24}, {0, 5, 0, 1}, {-60, 20, 5, -1}}},
};

Tensor make(Type type, const Form& form, size_t i) {
  return form.strides[i].empty() ? Tensor(type, form.shape)
                                 : Tensor(type, form.shape, form.strides[i]);
}

Array array_of(Tensor* tensor) {
  Array array;
  array.type = tensor->type;
  array.shape = tensor->shape;
  for (int64_t i = 0; i < tensor->numel(); ++i) {
    const Any value = tensor->get(i);
    if (is_float(tensor->type)) {
      array.real.push_back(static_cast<double>(value.real));
    } else {
      array.integer.push_back(value.integer);
    }
  }
  return array;
}

// Functions whose vectors and single numbers are computed in different ways, both accurate: which
// way an element is computed depends on its neighbours.
bool depends_on_neighbours(std::string_view name) {
  for (const char* one : {"sin", "cos", "tan", "exp", "log"})
    if (name == one) return true;
  return false;
}

// A graph with the results of many operations on the same inputs.
struct Many {
  Graph graph;
  std::array<Id, 3> inputs = {};
  std::vector<std::string> names;
};
// The operations that a type has, in as many graphs as limits need; `rank` is that of the inputs.
std::vector<Many> all_operations(Type type, int rank) {
  std::vector<Many> all;
  const auto begin = [&] {
    Many& many = all.emplace_back();
    for (size_t i = 0; i < 3; ++i)
      many.inputs[i] = many.graph.input(std::string(1, static_cast<char>('a' + i)), type, rank);
  };
  begin();
  for (int op = static_cast<int>(Op::kCast) + 1; op < static_cast<int>(Op::kSum); ++op) {
    if (all.back().names.size() == kMaxResults) begin();
    Graph& graph = all.back().graph;
    std::array<Id, 3> args = {kNone, kNone, kNone};
    const Operation& what = operation(static_cast<Op>(op));
    for (size_t i = 0; i < static_cast<size_t>(what.arguments); ++i) args[i] = all.back().inputs[i];
    try {
      graph.add_result(graph.apply(static_cast<Op>(op), args[0], args[1], args[2]));
      all.back().names.emplace_back(what.name);
    } catch (const Error&) {
      continue;  // no operation on this type
    }
  }
  return all;
}

// Units in the last place by which the evaluator's result, which is computed in double, may differ.
long double tolerance(std::string_view name, Type type) {
  // gelu's polynomial has that error for negative numbers, and gelu_tanh's exponent is rounded
  // (formula_activations.hpp; interpreter_test.cc has the limit for each argument).
  if (type == Type::kFloat16 || type == Type::kBfloat16)
    return name.starts_with("gelu") ? 0.52L : 0.502L;
  if (type == Type::kFloat32)
    return name == "gelu_tanh"                   ? 512
           : name == "gelu"                      ? 32
           : name == "sigmoid" || name == "silu" ? 4
                                                 : 2;
  // The evaluator's own functions of float64 are no more accurate than the code's.
  return name.starts_with("gelu") || name == "logaddexp" || name == "pow" ? HUGE_VAL : 64;
}

void check_operations(const Many& many, opdock_formula_function function, Type type,
                      const Form& form, std::mt19937* random) {
  std::vector<Tensor> inputs, results, wanted;
  for (size_t i = 0; i < 3; ++i) {
    inputs.push_back(make(type, form, i));
    randomize(&inputs.back(), random);
  }
  std::vector<Tensor*> from, to, want;
  for (Tensor& input : inputs) from.push_back(&input);
  for (const Id id : many.graph.results()) {
    results.push_back(make(many.graph[id].type, form, 3));
    wanted.push_back(make(many.graph[id].type, form, 3));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    to.push_back(&results[i]);
    want.push_back(&wanted[i]);
  }
  const int64_t parts = form.shape[0] % 3 + 1;
  run(many.graph, from, want, {}, parts);
  run(function, many.graph, from, to, {}, parts);
  std::vector<Array> arrays;
  for (Tensor& input : inputs) arrays.push_back(array_of(&input));
  const bool is_small = inputs[0].numel() < 3000;
  const std::vector<Array> exact =
      is_small ? evaluate(many.graph, arrays, {}) : std::vector<Array>();
  for (size_t r = 0; r < results.size(); ++r) {
    const std::string& name = many.names[r];
    const Type own = results[r].type;
    for (int64_t i = 0; i < results[r].numel(); ++i) {
      const Any got = results[r].get(i), interpreted = wanted[r].get(i);
      const auto text = [&] {
        std::string all = name + " " + std::string(name_of(type)) + " " + form.name + " at " +
                          std::to_string(i) + ":";
        for (Tensor& input : inputs)
          all += " " + (is_float(type) ? std::to_string(input.get(i).real)
                                       : std::to_string(input.get(i).integer));
        return all + " got " + std::to_string(got.real) + " " + std::to_string(got.integer) +
               ", interpreted " + std::to_string(interpreted.real) + " " +
               std::to_string(interpreted.integer);
      };
      if (is_float(own) && std::isnan(interpreted.real)) {
        ASSERT_TRUE(std::isnan(got.real)) << text();
      } else if (is_float(own) && depends_on_neighbours(name)) {
        ASSERT_LE(distance(own, got.real, interpreted.real), own == Type::kFloat64 ? 4 : 1)
            << text();
      } else {
        ASSERT_EQ(std::memcmp(results[r].at(i), wanted[r].at(i), static_cast<size_t>(size_of(own))),
                  0)
            << text();
      }
      if (!is_small) continue;
      if (is_float(own)) {
        // Large integers are rounded to float32, which the evaluator does not do.
        if (type == Type::kInt32 || type == Type::kInt64) continue;
        const double right = exact[r].real[static_cast<size_t>(i)];
        if (own == Type::kFloat64 && std::fabs(right) < 1e-300) continue;
        ASSERT_LE(distance(own, got.real, right), tolerance(name, own))
            << text() << ", evaluated " << right;
      } else {
        ASSERT_EQ(got.integer, exact[r].integer[static_cast<size_t>(i)]) << text();
      }
    }
  }
}

class Operations : public testing::TestWithParam<Type> {};
TEST_P(Operations, AreThoseOfTheInterpreterAndTheEvaluator) {
  const Type type = GetParam();
  // The compiler takes five seconds for a type.
  if (!is_tested(type)) GTEST_SKIP() << "runs with --nightly";
  std::mt19937 random(1);
  const std::vector<Many> two = all_operations(type, 2), four = all_operations(type, 4);
  // The code depends on the rank only as to whether a tensor has columns.
  std::vector<Graph> graphs;
  for (const Many& many : two) graphs.push_back(many.graph);
  const Compiled compiled(graphs);
  for (size_t i = 0; i < two.size(); ++i) {
    ASSERT_NE(compiled.function(i), nullptr);
    for (const Form& form : kForms) {
      const Many& many = form.shape.size() == 2 ? two[i] : four[i];
      check_operations(many, compiled.function(i), type, form, &random);
      if (HasFatalFailure()) return;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(CpuSource, Operations, testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(name_of(type.param)); });

// Compares results with the interpreter's. Sums are added up in another order: results differ by
// some units of their own last place, or, after a subtraction, of that of numbers up to 4.
void check_equal(Tensor* got, Tensor* want, long double units, const std::string& what) {
  for (int64_t i = 0; i < got->numel(); ++i) {
    const Any a = got->get(i), b = want->get(i);
    if (is_float(got->type)) {
      if (std::fabs(a.real - b.real) <= units / 2 * ulp(got->type, 4)) continue;
      ASSERT_LE(distance(got->type, a.real, b.real), units)
          << what << " at " << i << ": got " << a.real << ", want " << b.real;
    } else {
      ASSERT_EQ(a.integer, b.integer) << what << " at " << i;
    }
  }
}

TEST(CpuSource, ReductionsAreThoseOfTheInterpreter) {
  std::mt19937 random(3);
  struct Case {
    Type type;
    Op op;
  };
  std::vector<Case> cases;
  std::vector<Graph> graphs;
  for (int op = static_cast<int>(Op::kSum); op <= static_cast<int>(Op::kAll); ++op) {
    for (const Type type : kTypes) {
      if (!is_tested(type)) continue;
      Graph graph;
      try {
        graph.add_result(graph.apply(static_cast<Op>(op), graph.input("x", type, 2)));
      } catch (const Error&) {
        continue;
      }
      cases.push_back({type, static_cast<Op>(op)});
      graphs.push_back(std::move(graph));
    }
  }
  const Compiled compiled(graphs, "-O0");
  for (size_t i = 0; i < graphs.size(); ++i) {
    const auto [type, op] = cases[i];
    for (const int64_t columns : {0, 1, 5, 16, 100, 1024, 5003}) {
      for (const bool plain : {true, false}) {
        for (const int layout : {0, 1, 2}) {
          const int64_t num_rows = columns > 2000 && !is_nightly() ? 7 : 37;
          const std::vector<int64_t> strides = layout == 0   ? std::vector<int64_t>{columns, 1}
                                               : layout == 1 ? std::vector<int64_t>{1, num_rows}
                                                             : std::vector<int64_t>{1, 0};
          Tensor from(type, {num_rows, columns}, strides);
          randomize(&from, &random, plain);
          if (op == Op::kProd && is_float(type))
            for (int64_t k = 0; k < from.numel(); ++k)
              if (type == Type::kFloat32) from.put(k, 1 + static_cast<float>(k % 1000) * 1e-6f);
          const Type own = graphs[i][graphs[i].results()[0]].type;
          Tensor to(own, {num_rows}), want(own, {num_rows});
          run(graphs[i], {&from}, {&want}, {}, 2);
          run(compiled.function(i), graphs[i], {&from}, {&to}, {}, 2);
          const std::string text = std::string(operation(op).name) + " of " +
                                   std::string(name_of(type)) + ", " + std::to_string(columns) +
                                   " columns, layout " + std::to_string(layout);
          const bool is_sum = op == Op::kSum || op == Op::kMean || op == Op::kProd;
          if (is_sum && is_float(type) && (!plain || type != Type::kFloat32)) continue;
          if (is_sum && is_float(type)) {
            for (int64_t r = 0; r < num_rows; ++r) {
              long double size = 0;
              for (int64_t c = 0; c < columns; ++c)
                size += std::fabs(from.get(r * columns + c).real);
              if (op == Op::kMean) size /= static_cast<long double>(std::max<int64_t>(columns, 1));
              if (op == Op::kProd) size = want.get(r).real;
              if (std::isnan(want.get(r).real)) continue;
              ASSERT_LE(std::fabs(to.get(r).real - want.get(r).real), 16 * ulp(own, size)) << text;
            }
          } else {
            check_equal(&to, &want, op == Op::kLogsumexp ? 4 : 0, text);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(CpuSource, ConversionsAreThoseOfTheInterpreter) {
  std::mt19937 random(5);
  std::vector<Graph> graphs;
  for (const Type from : kTypes) {
    Graph graph;
    const Id x = graph.input("x", from, 2);
    for (const Type to : kTypes) graph.add_result(graph.cast(x, to));
    graphs.push_back(std::move(graph));
  }
  const Compiled compiled(graphs, "-O0");
  for (size_t g = 0; g < graphs.size(); ++g)
    for (const Form& form : kForms) {
      if (form.shape.size() != 2) continue;
      Tensor in = make(kTypes[g], form, 0);
      randomize(&in, &random);
      std::vector<Tensor> results, wanted;
      for (const Type to : kTypes) {
        results.push_back(make(to, form, 3));
        wanted.push_back(make(to, form, 3));
      }
      std::vector<Tensor*> to, want;
      for (size_t i = 0; i < results.size(); ++i) {
        to.push_back(&results[i]);
        want.push_back(&wanted[i]);
      }
      run(graphs[g], {&in}, want);
      run(compiled.function(g), graphs[g], {&in}, to);
      for (size_t i = 0; i < results.size(); ++i) {
        check_equal(to[i], want[i], 0,
                    std::string(name_of(kTypes[g])) + " to " + std::string(name_of(kTypes[i])) +
                        " " + form.name);
        if (HasFatalFailure()) return;
      }
    }
}

// Formulas of several passes, of numbers of the call and its places, of 16-bit floats that are
// rounded, and of tensors without columns.
struct Case {
  const char* text;
  std::vector<Parameter> parameters;  // empty: tensors
  std::vector<Argument> arguments;
  bool exact = false;
};
Argument tensor(Type type, int rank = 2) {
  Argument argument;
  argument.type = type;
  argument.rank = rank;
  return argument;
}
std::vector<Case> cases() {
  using K = Parameter::Kind;
  const Type F = Type::kFloat32, H = Type::kFloat16, B = Type::kBfloat16, D = Type::kFloat64;
  std::vector<Case> all = {
      {"softmax(x)", {}, {tensor(F)}},
      {"softmax(x)", {}, {tensor(D)}},
      {"log_softmax(x * 2)", {}, {tensor(H)}},
      {"y = x * rsqrt(mean(x * x) + 1e-5)\nreturn y * w, amax(x), argmin(x)",
       {},
       {tensor(B), tensor(B, 1)}},
      {"m = mean(x)\nd = x - m\nreturn d * rsqrt(mean(d * d) + eps) * w + b",
       {{"x", K::kTensor}, {"w", K::kTensor}, {"b", K::kTensor}, {"eps", K::kFloat}},
       {tensor(F), tensor(F, 1), tensor(F, 1), {}}},
      {"silu(gate) * up + residual", {}, {tensor(H), tensor(B), tensor(F)}},
      {"where(column() <= row(), x, -inf) + n",
       {{"x", K::kTensor}, {"n", K::kInt}},
       {tensor(F), {}}},
      {"x * row() + column() * columns()", {}, {tensor(Type::kInt64)}},
      {"x * s + t",
       {{"x", K::kTensor}, {"s", K::kFloat}, {"t", K::kTensor}},
       {tensor(H), {}, tensor(F, 0)}},
      {"(x * 0.1 + 1) * 3", {}, {tensor(H)}, true},
      {"(x + 1).to(int8).to(int32) * 100", {}, {tensor(F)}},
      {"p - 0.1 * m, m * 0.9 + g, any(g > 3), all(p < 100)", {}, {tensor(F), tensor(F), tensor(F)}},
      {"return a * cosine - b * sine, b * cosine + a * sine",
       {},
       {tensor(F), tensor(F), tensor(F), tensor(F)}},
  };
  return all;
}

TEST(CpuSource, FormulasAreThoseOfTheInterpreter) {
  std::mt19937 random(7);
  std::vector<Graph> graphs;
  for (const Case& one : cases()) {
    const Formula formula =
        one.parameters.empty() ? Formula(one.text) : Formula(one.text, one.parameters);
    graphs.push_back(formula.graph(one.arguments, one.exact));
  }
  const Compiled compiled(graphs);
  for (size_t g = 0; g < graphs.size(); ++g) {
    const Graph& graph = graphs[g];
    for (const int64_t columns : {1, 3, 16, 50, 1000, 40000, 140000}) {
      // By day the longest rows, which take most of the time, are those of every fourth formula.
      if (columns > 100000 && g % 4 != 0 && !is_nightly()) continue;
      for (const int layout : {0, 1, 2}) {
        const int64_t rows = columns > 1000 ? 2 : 37;
        std::vector<Tensor> inputs, results, wanted;
        for (const Input& input : graph.inputs()) {
          std::vector<int64_t> shape = {rows, columns}, strides = {columns, 1};
          if (layout == 1) strides = {1, rows};
          if (layout == 2) strides = {2 * columns, 2};
          shape.erase(shape.begin(), shape.end() - input.rank);
          strides.erase(strides.begin(), strides.end() - input.rank);
          inputs.emplace_back(input.type, shape, strides);
          randomize(&inputs.back(), &random, true);
        }
        for (const Id id : graph.results()) {
          std::vector<int64_t> shape = {rows, columns};
          if ((graph[id].extent & kPerColumn) == 0) shape.pop_back();
          results.emplace_back(graph[id].type, shape);
          wanted.emplace_back(graph[id].type, shape);
        }
        std::vector<Tensor*> from, to, want;
        for (Tensor& input : inputs) from.push_back(&input);
        for (size_t i = 0; i < results.size(); ++i) {
          to.push_back(&results[i]);
          want.push_back(&wanted[i]);
        }
        const std::vector<Value> scalars = {{1e-5, 3}, {0.25, 2}};
        run(graph, from, want,
            {scalars.begin(), scalars.begin() + static_cast<long>(graph.scalars().size())}, 3);
        run(compiled.function(g), graph, from, to,
            {scalars.begin(), scalars.begin() + static_cast<long>(graph.scalars().size())}, 3);
        for (size_t i = 0; i < results.size(); ++i) {
          // Sums differ in their last digits, which 16 bits do not show unless they are in the
          // middle between two numbers.
          const bool is_double = results[i].type == Type::kFloat64;
          check_equal(to[i], want[i],
                      !graph.has_reductions() ? 0
                      : is_double             ? 64
                                              : 8,
                      std::string(cases()[g].text) + ", " + std::to_string(columns) +
                          " columns, layout " + std::to_string(layout));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Two results swap the memory of their inputs, and one of them is an input.
TEST(CpuSource, ResultsMayBeTheMemoryOfInputs) {
  Graph graph;
  const Id x = graph.input("x", Type::kFloat32, 2), y = graph.input("y", Type::kFloat32, 2);
  graph.add_result(graph.apply(Op::kAdd, graph.apply(Op::kMul, x, y), x));
  graph.add_result(x);
  Graph softmax;
  const Id z = softmax.input("x", Type::kFloat32, 2);
  const Id power = softmax.apply(Op::kExp, z);
  softmax.add_result(softmax.apply(Op::kDiv, power, softmax.apply(Op::kSum, power)));
  const Compiled compiled({graph, softmax});
  for (const int64_t count : {1, 16, 1024, 3000, 40000}) {
    for (const int layout : {0, 1}) {
      const std::vector<int64_t> strides =
          layout == 0 ? std::vector<int64_t>{count, 1} : std::vector<int64_t>{1, 3};
      Tensor a(Type::kFloat32, {3, count}, strides), b(Type::kFloat32, {3, count}, strides);
      for (int64_t i = 0; i < 3 * count; ++i) {
        a.put(i, static_cast<float>(i % 1000));
        b.put(i, static_cast<float>(i % 7));
      }
      run(compiled.function(0), graph, {&a, &b}, {&a, &b}, {}, 2);
      for (int64_t i = 0; i < 3 * count; ++i) {
        const auto old = static_cast<float>(i % 1000), factor = static_cast<float>(i % 7);
        ASSERT_EQ(static_cast<float>(a.get(i).real), old * factor + old) << i;
        ASSERT_EQ(static_cast<float>(b.get(i).real), old) << i;
      }
      for (int64_t i = 0; i < 3 * count; ++i) b.put(i, static_cast<float>(i % 7));
      run(compiled.function(1), softmax, {&b}, {&b});
      for (int64_t r = 0; r < 3; ++r) {
        long double sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += b.get(r * count + i).real;
        ASSERT_NEAR(static_cast<double>(sum), 1, 1e-5);
      }
    }
  }
}

TEST(CpuSource, NamesAreChecked) {
  Graph graph;
  graph.add_result(graph.input("x", Type::kFloat32, 1));
  EXPECT_THROW(cpu_source(graph, "a b"), Error);
  EXPECT_THROW(cpu_source(graph, "1a"), Error);
  EXPECT_THROW(cpu_source(graph, ""), Error);
  EXPECT_NE(cpu_source(graph, "_a1").find("void _a1("), std::string::npos);
}

// Names of inputs may be anything: they do not end a comment, a text or a line.
TEST(CpuSource, NamesOfInputsAreOnlyNames) {
  Graph graph;
  const Id x = graph.input("x;}\n#error\"/*", Type::kFloat32, 1);
  graph.name(x, "x;}\n#error\"/*");
  graph.add_result(graph.apply(Op::kExp, x));
  const std::string text = cpu_source(graph, "f");
  for (const char* part : {"#error", ";}", "/*"}) EXPECT_EQ(text.find(part), text.npos) << text;
}

}  // namespace
}  // namespace opdock::formula
