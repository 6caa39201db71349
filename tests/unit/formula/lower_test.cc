// Tests which graphs formulas become, compared with graphs that are made node by node.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "formula/formula.h"

namespace opdock::formula {
namespace {

using ParameterKind = Parameter::Kind;

// Returns the key of the graph that `make` fills and whose result it returns.
std::string key_of(const std::function<Id(Graph&)>& make, bool exact = false) {
  Graph graph(exact);
  graph.add_result(make(graph));
  return graph.key();
}

// Returns the key of a formula whose tensors x, y, … are matrices of this type.
std::string text_key(const std::string& text, Type type = Type::kFloat32, bool exact = false) {
  const Formula formula(text);
  Argument argument;
  argument.type = type;
  return formula.graph(std::vector<Argument>(formula.parameters().size(), argument), exact).key();
}

TEST(Lower, OperatorsAreOperations) {
  const std::pair<const char*, Op> rows[] = {
      {"+", Op::kAdd},           {"-", Op::kSub},          {"*", Op::kMul},
      {"/", Op::kDiv},           {"//", Op::kFloorDivide}, {"%", Op::kRemainder},
      {"**", Op::kPow},          {"==", Op::kEqual},       {"!=", Op::kNotEqual},
      {"<", Op::kLess},          {"<=", Op::kLessEqual},   {">", Op::kGreater},
      {">=", Op::kGreaterEqual}, {"&", Op::kBitwiseAnd},   {"|", Op::kBitwiseOr},
      {"^", Op::kBitwiseXor},    {"<<", Op::kShiftLeft},   {">>", Op::kShiftRight}};
  for (const auto& [symbol, op] : rows) {
    const auto make = [op = op](Graph& graph) {
      const Id x = graph.input("x", Type::kInt32, 2), y = graph.input("y", Type::kInt32, 2);
      return graph.apply(op, x, y);
    };
    EXPECT_EQ(text_key(std::string("x ") + symbol + " y", Type::kInt32), key_of(make)) << symbol;
  }
  const std::pair<const char*, Op> prefixes[] = {{"-", Op::kNegative}, {"~", Op::kBitwiseNot}};
  for (const auto& [symbol, op] : prefixes) {
    const auto make = [op = op](Graph& graph) {
      return graph.apply(op, graph.input("x", Type::kInt32, 2));
    };
    EXPECT_EQ(text_key(std::string(symbol) + "x", Type::kInt32), key_of(make)) << symbol;
  }
  EXPECT_EQ(text_key("+x"), text_key("x"));
}

TEST(Lower, EveryOperationIsAFunction) {
  struct Row {
    const char* name;
    int arguments;
    Op op;
  };
  const Row rows[] = {
#define OPDOCK_OPERATION(identifier, name, arguments, rule, derivatives) \
  {name, arguments, Op::identifier},
#include "formula/operations.def"
#undef OPDOCK_OPERATION
  };
  for (const Row& row : rows) {
    // Integers for those that take no floats, floats for the others.
    for (const Type type : {Type::kFloat32, Type::kInt32}) {
      const auto make = [&](Graph& graph) {
        Id args[3] = {kNone, kNone, kNone};
        const char* names[] = {"x", "y", "z"};
        for (int i = 0; i < row.arguments; ++i) args[i] = graph.input(names[i], type, 2);
        return graph.apply(row.op, args[0], args[1], args[2]);
      };
      std::string wanted;
      try {
        wanted = key_of(make);
      } catch (const Error&) {
        continue;
      }
      const std::string list =
          std::string("x, y, z").substr(0, static_cast<size_t>(row.arguments) * 3 - 2);
      EXPECT_EQ(text_key(std::string(row.name) + "(" + list + ")", type), wanted) << row.name;
    }
  }
}

TEST(Lower, CompositesAreSeveralOperations) {
  const std::pair<const char*, const char*> rows[] = {
      {"square(x)", "x * x"},
      {"max(x)", "amax(x)"},
      {"min(x)", "amin(x)"},
      {"max(x, y)", "maximum(x, y)"},
      {"x.min(y)", "minimum(x, y)"},
      {"clamp(x, min=0, max=6)", "clamp_max(clamp_min(x, 0), 6)"},
      {"clamp(x, max=6)", "clamp_max(x, 6)"},
      {"clamp(x, None, 6)", "clamp_max(x, 6)"},
      {"x.clamp(-1)", "clamp_min(x, -1)"},
      {"gelu(x, approximate='none')", "gelu(x)"},
      {"gelu(x, approximate='tanh')", "gelu_tanh(x)"},
      {"lerp(x, y, 0.25)", "x + 0.25 * (y - x)"},
      {"softmax(x)", "t = exp(x - detach(amax(x)))\nt / sum(t)"},
      {"log_softmax(x)", "t = x - amax(x).detach()\nt - log(sum(exp(t)))"},
      {"var(x)", "t = x - mean(x)\nmean(t * t)"},
      {"var(x, correction=0)", "t = x - mean(x)\nmean(t * t)"},
      {"var(x, 1)", "t = x - mean(x)\nmean(t * t) * (columns() / (columns() - 1))"},
      {"x.half()", "x.to(float16)"},
      {"x.bfloat16()", "to(x, bfloat16)"},
      {"x.to(int8).float()", "x.to(int8).to(float32)"},
      {"x.double()", "x.to(float64)"},
      {"pi + e * x", "3.141592653589793 + 2.718281828459045 * x"},
      {"inf * x", "1 / 0. * x"},
      {"True + 0 * x", "1 + 0 * x"},
      {"where(x > 0, True, y)", "where(x > 0, 1, y)"}};
  for (const auto& [text, plain] : rows) {
    EXPECT_EQ(text_key(text), text_key(plain)) << text;
  }
  EXPECT_EQ(text_key("row() * columns() + column()"), key_of([](Graph& graph) {
              const Id row = graph.row(), columns = graph.columns();
              const Id product = graph.apply(Op::kMul, row, columns);
              return graph.apply(Op::kAdd, product, graph.column());
            }));
}

// Returns the graph's inputs and scalars, and the names of its nodes in their order.
std::string names(const Graph& graph) {
  std::string text;
  for (const Input& one : graph.inputs()) text += one.name + " ";
  text += "|";
  for (const Scalar& one : graph.scalars()) text += " " + one.name;
  text += " |";
  for (const auto& [id, name] : graph.names()) text += " " + name;
  return text;
}

TEST(Lower, ParametersKeepTheirOrderAndNodesTheirVariables) {
  const Formula formula(
      "t = x * a + n\nu = t\nt = exp(t)\nv = 2\nreturn t * u * b + v if flag else 0",
      {{"b", ParameterKind::kFloat},
       {"flag", ParameterKind::kBool},
       {"x"},
       {"n", ParameterKind::kInt},
       {"a", ParameterKind::kTensor, true}});
  std::vector<Argument> arguments(5);
  arguments[1].flag = true;
  const Graph graph = formula.graph(arguments);
  EXPECT_EQ(graph.inputs()[0].type, Type::kFloat32);
  EXPECT_EQ(graph.scalars()[0].type, Type::kFloat64);
  EXPECT_EQ(graph.scalars()[1].type, Type::kInt64);
  // "u" is another name of what "t" was. The constant is converted, so that "v" is gone.
  EXPECT_EQ(names(graph), "x a | b n | b n x a t t");
}

TEST(Lower, ChoicesDecide) {
  const std::vector<Parameter> parameters = {{"x"},
                                             {"weight", ParameterKind::kTensor, true},
                                             {"eps", ParameterKind::kFloat, true},
                                             {"flag", ParameterKind::kBool},
                                             {"maybe", ParameterKind::kBool, true},
                                             {"mode", ParameterKind::kString},
                                             {"other", ParameterKind::kString, true}};
  // Each text is a choice, and what it is in each of four calls.
  struct Row {
    const char* choice;
    const char* wanted;
  };
  const Row rows[] = {{"weight", "1010"},
                      {"not weight", "0101"},
                      {"weight == None", "0101"},
                      {"None != eps", "1100"},
                      {"eps", "1100"},
                      {"flag", "1001"},
                      {"flag == True", "1001"},
                      {"flag != maybe", "1110"},
                      {"maybe", "0011"},
                      {"maybe == None", "1100"},
                      {"mode == \"tanh\"", "1000"},
                      {"'none' != mode", "1000"},
                      {"other", "0011"},
                      {"other == 'b'", "0010"},
                      {"other != 'b'", "1101"},
                      {"mode == other", "0001"},
                      {"flag and weight", "1000"},
                      {"flag or weight", "1011"},
                      {"weight and weight.dtype == float64", "0010"},
                      {"not weight or weight.dtype != float64", "1101"},
                      {"x.dtype == float32", "1111"},
                      {"(x + 1.0).dtype == x.to(float32).dtype", "1111"},
                      {"(x * 2).to(float16).dtype != float16", "0000"},
                      {"(flag if weight else maybe)", "1001"},
                      {"('a' if flag else 'b') == 'a'", "1001"},
                      {"(float16 if flag else x.dtype) == float16", "1001"},
                      {"True", "1111"},
                      {"True and not False", "1111"}};
  for (const Row& row : rows) {
    // Each parameter is used once here, because a parameter without a use is an error.
    const std::string all =
        "1 if weight and eps and flag and maybe and mode == '' and other else x";
    const Formula formula("t = " + all + "\nreturn 2 * t if " + row.choice + " else 3 * t",
                          parameters);
    for (size_t i = 0; i < 4; ++i) {
      std::vector<Argument> arguments(parameters.size());
      arguments[1].is_present = i % 2 == 0;
      arguments[1].type = i == 2 ? Type::kFloat64 : Type::kFloat32;
      arguments[2].is_present = i < 2;
      arguments[3].flag = i == 0 || i == 3;
      arguments[4].is_present = i >= 2;
      arguments[4].flag = true;
      arguments[5].text = i == 0 ? "tanh" : "none";
      arguments[6].is_present = i >= 2;
      arguments[6].text = i == 2 ? "b" : "none";
      const bool is_taken = row.wanted[i] == '1';
      const Graph graph = formula.graph(arguments);
      Graph wanted;
      const Id x = wanted.input("x", Type::kFloat32, 2);
      if (i % 2 == 0) wanted.input("weight", arguments[1].type, 2);
      if (i < 2) wanted.scalar("eps", Type::kFloat64);
      wanted.add_result(wanted.apply(Op::kMul, wanted.constant(int64_t{is_taken ? 2 : 3}), x));
      EXPECT_EQ(graph.key(), wanted.key()) << row.choice << " in call " << i;
    }
  }
}

// Returns what is said when the formula is lowered for these arguments.
std::string lowering_error(const std::string& text, const std::vector<Parameter>& parameters,
                           const std::vector<Argument>& arguments) {
  const Formula formula(text, parameters);
  try {
    formula.graph(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lower, BranchesThatAreNotTakenAreNotLowered) {
  const std::vector<Parameter> parameters = {{"x"}, {"w", ParameterKind::kTensor, true}};
  std::vector<Argument> arguments(2);
  arguments[1].is_present = false;
  for (const char* text :
       {"x * w if w else x", "x if not w else x * w", "x if w == None else (w.exp() if w else w)",
        "(w if w else x) * (x if not w else w)", "x if not (w and w.dtype == float16) else w",
        "clamp(x, min=w) if w else x", "y = w\nreturn y * x if y else x",
        "x if False and w.dtype == int8 else x"})
    EXPECT_EQ(lowering_error(text, parameters, arguments), "no error") << text;
}

TEST(Lower, ErrorsNameThePlace) {
  const std::vector<Parameter> parameters = {{"x"}, {"w", ParameterKind::kTensor, true}};
  std::vector<Argument> arguments(2);
  arguments[1].is_present = false;
  const std::string absent =
      "found a use of \"w\", which is None in this call, wanted it only where it is there: \"… if "
      "w else …\"\n";
  EXPECT_EQ(lowering_error("y = x\nreturn y * w", parameters, arguments),
            "line 2, column 12: " + absent + "  return y * w\n             ^");
  EXPECT_EQ(lowering_error("x, w", parameters, arguments),
            "line 1, column 4: " + absent + "  x, w\n     ^");
  EXPECT_EQ(lowering_error("x if w.dtype == int8 else x", parameters, arguments),
            "line 1, column 6: " + absent + "  x if w.dtype == int8 else x\n       ^");
  EXPECT_EQ(lowering_error("x * (w if x.dtype == float32 else 1)", parameters, arguments),
            "line 1, column 6: " + absent + "  x * (w if x.dtype == float32 else 1)\n       ^");
  arguments[1].is_present = true;
  EXPECT_EQ(lowering_error("(x < 0) + (w < 0)", parameters, arguments),
            "line 1, column 9: \"add\": found bool, wanted numbers; for bools there are &, | and "
            "^\n  (x < 0) + (w < 0)\n          ^");
  EXPECT_EQ(lowering_error("x * w.sum().sum()", parameters, arguments),
            "line 1, column 13: \"sum\": found an argument that is the same in the whole row, "
            "wanted one that has a number for each column\n  x * w.sum().sum()\n              ^");
  EXPECT_EQ(lowering_error("x * w", parameters, {}),
            "found 0 arguments of a formula, wanted 2, one for each parameter");
  std::vector<Argument> texts(3);
  texts[1].text = "exact";
  const std::vector<Parameter> modes = {
      {"x"}, {"mode", ParameterKind::kString}, {"w", ParameterKind::kString, true}};
  EXPECT_EQ(lowering_error("gelu(x, approximate=mode) if not w else x", modes, texts), "no error");
  texts[2].is_present = false;
  EXPECT_EQ(
      lowering_error("gelu(x, approximate=mode) if not w else x", modes, texts),
      "line 1, column 21: found approximate=\"exact\", wanted \"none\" or \"tanh\"\n  gelu(x, "
      "approximate=mode) if not w else x\n                      ^");
  EXPECT_EQ(lowering_error("gelu(x, approximate=w) if mode == 'exact' else x", modes, texts),
            "line 1, column 21: found approximate=None, wanted \"none\" or \"tanh\"\n  gelu(x, "
            "approximate=w) if mode == 'exact' else x\n                      ^");
}

TEST(Lower, LimitsOfTheGraphNameThePlace) {
  std::string sum = "x0";
  for (int i = 1; i < 60; ++i) sum += " + x" + std::to_string(i);
  const Formula many(sum);
  try {
    many.graph(std::vector<Argument>(60));
    ADD_FAILURE();
  } catch (const SyntaxError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 98),
              "line 1, column 279: found more than 48 tensors, wanted at most that many; split the "
              "formula in two");
  }
  std::string long_one = "x";
  for (int i = 0; i < 5000; ++i) long_one += "+x*" + std::to_string(i) + ".";
  const Formula formula(long_one);
  try {
    formula.graph(std::vector<Argument>(1));
    ADD_FAILURE();
  } catch (const SyntaxError& error) {
    EXPECT_NE(
        std::string(error.what())
            .find(": found more than 4096 operations, wanted a smaller formula; split it in two\n"),
        std::string::npos)
        << error.what();
  }
}

TEST(Lower, AFreeNameIsOneTensorWhereverItStands) {
  const auto make = [](Graph& graph) {
    const Id x = graph.input("x", Type::kFloat32, 2), y = graph.input("y", Type::kFloat32, 2);
    const Id difference = graph.apply(Op::kSub, x, y);
    return graph.apply(Op::kDiv, difference, y);
  };
  EXPECT_EQ(text_key("(x - y) / y"), key_of(make));
}

TEST(Lower, FormulasThatDifferInTheOrderOfArgumentsHaveOneKey) {
  const std::vector<std::vector<const char*>> groups = {
      {"x * y + z", "y * x + z", "z + x * y", "z + y * x", "t = z\nu = y\nx * u + t"},
      {"row() * columns() * x", "columns() * row() * x", "x * (columns() * row())",
       "c = columns()\nr = row()\nx * (r * c)"},
      {"(x < y) & (y == z)", "(z == y) & (x < y)", "b = z == y\na = x < y\na & b"},
      {"exp(x) * exp(y) + exp(z) * exp(x - y)", "exp(x - y) * exp(z) + exp(y) * exp(x)",
       "c = exp(z)\nd = exp(y)\nt = exp(x - y)\nexp(x) * d + c * t"},
      {"maximum(x * 2.0, minimum(y, 3.0)) + x * 3.0",
       "3.0 * x + maximum(minimum(3.0, y), 2.0 * x)"},
  };
  const auto key = [](const std::string& text) {
    std::vector<Parameter> parameters;
    for (const char* name : {"x", "y", "z"})
      if (text.find(name) != text.npos) parameters.push_back({name});
    return Formula(text, parameters).graph(std::vector<Argument>(parameters.size())).key();
  };
  std::vector<std::string> keys;
  for (const auto& group : groups) {
    keys.push_back(key(group[0]));
    for (const char* text : group) EXPECT_EQ(key(text), keys.back()) << text;
  }
  // Sums are not associative, and differences not commutative.
  for (const char* text : {"x + (y + z)", "(x + y) + z", "(x + z) + y", "x - y", "y - x",
                           "x * y - z", "x * z + y", "fma(x, y, z)"})
    keys.push_back(key(text));
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

TEST(Lower, AnExactGraphIsMarked) {
  EXPECT_NE(text_key("x * 2", Type::kFloat16, true), text_key("x * 2", Type::kFloat16));
}

TEST(Expand, AddsToAGraph) {
  Graph graph;
  const Id x = graph.input("x", Type::kFloat32, 2);
  const Id g = graph.apply(Op::kExp, x);
  const std::vector<Id> ids = Formula("t = g * 2\nt, t + g").expand(&graph, {{"g", g}, {"a", x}});
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0], graph.apply(Op::kMul, g, graph.constant(int64_t{2})));
  EXPECT_EQ(ids[1], graph.apply(Op::kAdd, ids[0], g));
  EXPECT_TRUE(graph.results().empty());
  EXPECT_EQ(graph.names().at(ids[0]), "t");
  try {
    Formula("g * b").expand(&graph, {{"g", g}});
    ADD_FAILURE();
  } catch (const SyntaxError& error) {
    EXPECT_STREQ(
        error.what(),
        "line 1, column 5: found the parameter \"b\", wanted one that has a node\n  g * b\n"
        "      ^");
  }
}

TEST(Expand, TakesAllDerivatives) {
#define OPDOCK_OPERATION(identifier, name, arguments, rule, derivatives) derivatives,
  for (const std::string text : {
#include "formula/operations.def"
       }) {
#undef OPDOCK_OPERATION
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(';', begin), text.size());
      const std::string one = text.substr(begin, end - begin);
      if (!one.empty()) {
        EXPECT_EQ(Formula(one).num_results(), 1u) << one;
      }
      begin = end + 1;
    }
  }
}

}  // namespace
}  // namespace opdock::formula
