// Tests formulas that see tensors in parts, by chunk() and cat(), or in groups, by grouped(): their
// texts, what is said about mistakes, and what the evaluator makes of them.
// tests/formula/test_views.py has the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "arrays.h"
#include "formula/gradient.h"
#include "formula/operands.h"

namespace opdock::formula {
namespace {

TEST(Views, ArePrintedAsTheyAreWritten) {
  for (const char* text : {
           "a, b = chunk(x, 2)\nreturn a * b",
           "_, b = x.chunk(2, dim=-1)\nreturn b",
           "a, _ = chunk(x, 2)\nc = a + 1\nd, _, e = chunk(y, 3)\nreturn c * d * e",
           "a, b = chunk(x, 2)\nc, d = chunk(x, 2)\nreturn a + b + c + d",
           "cat(x, y)",
           "a, b = chunk(x, 2)\nreturn cat(b, a), a > b, cat(a, a, b)",
           "q * grouped(scale)",
       })
    EXPECT_EQ(Formula(text).text(), text);
  EXPECT_EQ(Formula("a , b=x.chunk( 2 ,-1 )\ncat( (b) ,a)").text(),
            "a, b = x.chunk(2, dim=-1)\nreturn cat(b, a)");
}

std::string error_of(const std::string& text) {
  const std::vector<Parameter> params = {
      {"x"}, {"w", Parameter::Kind::kTensor, true}, {"n", Parameter::Kind::kInt}};
  std::string what = "no error";
  std::vector<Parameter> used;
  for (const Parameter& one : params)
    if (text.find(one.name) != std::string::npos) used.push_back(one);
  try {
    const Formula formula(text, used);
  } catch (const SyntaxError& error) {
    what = error.what();
  }
  return what.substr(0, what.find('\n'));
}

TEST(Views, MistakesAreTold) {
  const std::pair<const char*, const char*> rows[] = {
      {"a = chunk(x, 2)\na",
       "line 1, column 1: found \"a\", wanted as many names as there are parts: first, second = "
       "chunk(x, 2)"},
      {"a, b, c = chunk(x, 2)\na + b + c",
       "line 1, column 1: found 3 names, wanted 2, one for each part; a part that is not used is "
       "called _"},
      {"a, b = x * 2\na + b",
       "line 1, column 8: found \"x\", wanted one name before \"=\", or chunk(x, 2) behind it"},
      {"a, a = chunk(x, 2)\na",
       "line 1, column 4: found \"a\", wanted another name, because this one stands there twice"},
      {"a, b = chunk(x, 2)\na",
       "line 1, column 4: found the variable \"b\" that nothing uses, wanted a use; remove this "
       "statement"},
      {"a, b = chunk(x + 1, 2)\na + b",
       "line 1, column 16: found \"+\" in the call of chunk, wanted a parameter that is a tensor"},
      {"a, b = chunk(n, 2)\na + b + x",
       "line 1, column 14: found \"n\" in the call of chunk, wanted a parameter that is a tensor"},
      {"a, b = chunk(x, 1)\na + b",
       "line 1, column 17: found \"1\" parts, wanted a number from 2 to 16"},
      {"a, b = chunk(x, 2, 0)\na + b",
       "line 1, column 20: found another dimension, wanted -1: formulas take parts of the last "
       "one"},
      {"chunk(x, 2) + 1",
       "line 1, column 1: found the parts of a tensor, wanted a tensor or a number; give the parts "
       "names first: first, second = chunk(x, 2)"},
      {"chunk(x, 2)",
       "line 1, column 1: found the parts of a tensor, wanted a tensor or a number; give the parts "
       "names first: first, second = chunk(x, 2)"},
      {"y = cat(x, x)\ny",
       "line 1, column 5: found cat within an expression, wanted it behind \"return\", as a whole "
       "result: return cat(a, b)"},
      {"cat(x, x) + 1",
       "line 1, column 11: found \"+\", wanted \",\" or the end of the formula: cat(…) is a whole "
       "result"},
      {"cat(x)", "line 1, column 1: found cat of 1 parts, wanted 2 to 16"},
      {"x * grouped(2)",
       "line 1, column 13: found \"2\" in the call of grouped, wanted a parameter that is a "
       "tensor"},
      {"a, b = chunk(x, 2)",
       "line 1, column 19: found the end of the formula, wanted a last line "
       "with the results: \"return …\""},
  };
  for (const auto& [text, told] : rows) EXPECT_EQ(error_of(text), told) << text;
}

// Returns what is said when the formula's graph is made for matrices and vectors.
std::string graph_error(const std::string& text, const std::vector<int>& ranks) {
  const Formula formula(text);
  std::vector<Argument> arguments(formula.parameters().size());
  for (size_t i = 0; i < ranks.size(); ++i) arguments[i].rank = ranks[i];
  try {
    formula.graph(arguments);
  } catch (const Error& error) {
    const std::string what = error.what();
    return what.substr(0, what.find('\n'));
  }
  return "no error";
}

TEST(Views, GraphsThatCannotBeAreRefused) {
  EXPECT_EQ(graph_error("a, b = chunk(x, 2)\na + b", {0}),
            "line 1, column 14: found \"x\" without dimensions, wanted a tensor with 2 parts along "
            "its last dimension");
  EXPECT_EQ(graph_error("cat(x, sum(x))", {2}),
            "line 1, column 8: found a part of cat that is the same in the whole row, wanted one "
            "that has a number for each column");
  EXPECT_EQ(graph_error("grouped(x)", {1}),
            "line 1, column 1: found no other tensor than grouped ones, wanted one whose elements "
            "the groups have");
  for (const char* text : {"sum(x) * grouped(y)", "x * grouped(y) * column()",
                           "a, b = chunk(x, 2)\na * b * grouped(y)", "cat(x, x * grouped(y))"})
    EXPECT_NE(graph_error(text, {2, 1}).find("found grouped beside a reduction, chunk, cat, row"),
              std::string::npos)
        << text;
}

TEST(Views, AreEvaluated) {
  const Array x = floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  // Each part is given the whole tensor.
  std::vector<Array> found = evaluate(
      graph_of("a, b = chunk(x, 2)\nreturn a * 10 + b, sum(a), cat(b, a)", {x}), {x, x}, {});
  EXPECT_EQ(found[0].real, (std::vector<double>{13, 24, 57, 68}));
  EXPECT_EQ(found[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(found[1].real, (std::vector<double>{3, 11}));
  EXPECT_EQ(found[2].real, (std::vector<double>{3, 4, 1, 2, 7, 8, 5, 6}));
  EXPECT_EQ(found[2].shape, (std::vector<int64_t>{2, 4}));
  found = run("q * grouped(s)", {x, floats({1, 10, 100, 1000})});
  EXPECT_EQ(found[0].real, (std::vector<double>{1, 2, 30, 40, 500, 600, 7000, 8000}));
  EXPECT_EQ(found[0].shape, (std::vector<int64_t>{2, 4}));
  EXPECT_THROW(evaluate(graph_of("a, _, _ = chunk(x, 3)\na", {x}), {x, x, x}, {}), Error);
  EXPECT_THROW(run("q * grouped(s)", {x, floats({1, 2, 3})}), Error);
}

TEST(Views, KeysSayTheParts) {
  const Array x = floats({2, 4}, std::vector<double>(8));
  const auto key = [&](const char* text, size_t tensors) {
    return graph_of(text, std::vector<Array>(tensors, x)).key();
  };
  EXPECT_NE(key("a, _ = chunk(x, 2)\nreturn a", 1), key("_, a = chunk(x, 2)\nreturn a", 1));
  EXPECT_NE(key("cat(x, y)", 2), key("x, y", 2));
  EXPECT_NE(key("x * grouped(y)", 2), key("x * y", 2));
}

TEST(Views, GradientsAreParts) {
  const Array x = floats({2, 4}, std::vector<double>(8));
  const Graph graph = graph_of("a, b = chunk(x, 2)\nreturn cat(sum(a) + b, b * b)", {x});
  const Gradient found = differentiate(graph, {0, 1});
  ASSERT_EQ(found.graph.inputs().size(), 4u);
  EXPECT_EQ(found.graph.inputs()[2].name, "grad");
  EXPECT_EQ(found.graph.inputs()[3].name, "grad");
  EXPECT_EQ(found.graph.inputs()[3].part.part, 1u);
  ASSERT_EQ(found.graph.result_parts().size(), 2u);
  EXPECT_EQ(found.graph.result_parts()[1].part, 1u);
  EXPECT_EQ(found.graph.num_outputs(), 1u);
  const Array grad = floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Array at = floats({2, 4}, {0, 0, 10, 20, 0, 0, 30, 40});
  const std::vector<Array> values = evaluate(found.graph, {at, at, grad, grad}, {});
  // d/da: the sum of the first half of grad; d/db: the first half + 2 b times the second one.
  EXPECT_EQ(values[0].real, (std::vector<double>{3, 3, 61, 162, 11, 11, 425, 646}));
  EXPECT_THROW(differentiate(graph_of("x * grouped(y)", {x, floats({1, 2})}), {1}), Error);
}

TEST(Views, AreMemoryOfTheirTensor) {
  double memory[12] = {};
  const int64_t shape[] = {2, 6}, strides[] = {1, 2};
  Operands operands(3);
  const Operand whole = {memory, 2, shape, strides};
  operands.add(whole, {}, 8, "x");
  operands.add(whole, {2, 3}, 8, "x");
  EXPECT_EQ(operands.list()[0].data, memory);
  EXPECT_EQ(operands.list()[0].shape[1], 6);
  EXPECT_EQ(operands.list()[1].data, memory + 8);
  EXPECT_EQ(operands.list()[1].shape[1], 2);
  try {
    operands.add(whole, {0, 4}, 8, "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "\"x\": found a last dimension of 6, wanted 4 equal parts along its "
                 "last dimension, which the formula takes");
  }
}

}  // namespace
}  // namespace opdock::formula
