// Tests what formulas mean, and that hostile texts cost little.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "formula/formula.h"
#include "formula/lexer.h"
#include "formula/program.h"

namespace opdock::formula {
namespace {

// Returns the tree of the last statement, over those of the tensors a to d and the choices p to r
// that the text mentions.
std::string tree(const std::string& text) {
  std::vector<Parameter> parameters;
  const std::vector<Token> tokens = read_tokens(text);
  for (const char* name : {"a", "b", "c", "d", "p", "q", "r"})
    if (std::any_of(tokens.begin(), tokens.end(), [&](auto& one) { return one.is_word(name); }))
      parameters.push_back({name, *name < 'p' ? Parameter::Kind::kTensor : Parameter::Kind::kBool});
  return print(*parse(text, &parameters, false), Parentheses::kAll);
}

struct TreeRow {
  const char *text, *tree;
};
// The trees are those of Python's module ast, with parentheses around each operation.
constexpr TreeRow kValues[] = {
    {"a + b * c", "(a + (b * c))"},
    {"a * b + c", "((a * b) + c)"},
    {"(a + b) * c", "((a + b) * c)"},
    {"a - b - c", "((a - b) - c)"},
    {"a - (b - c)", "(a - (b - c))"},
    {"a / b / c", "((a / b) / c)"},
    {"a / b * c", "((a / b) * c)"},
    {"a // b % c", "((a // b) % c)"},
    {"a % b // c", "((a % b) // c)"},
    {"a * -b", "(a * (-b))"},
    {"-a * b", "((-a) * b)"},
    {"-a + b", "((-a) + b)"},
    {"--a", "(-(-a))"},
    {"-~+a", "(-(~(+a)))"},
    {"~a & b", "((~a) & b)"},
    {"-a ** b", "(-(a ** b))"},
    {"a ** -b", "(a ** (-b))"},
    {"a ** b ** c", "(a ** (b ** c))"},
    {"(a ** b) ** c", "((a ** b) ** c)"},
    {"a ** -b ** c", "(a ** (-(b ** c)))"},
    {"-a ** -b", "(-(a ** (-b)))"},
    {"a ** -b * c", "((a ** (-b)) * c)"},
    {"a * b ** c", "(a * (b ** c))"},
    {"2 ** -a + b", "((2 ** (-a)) + b)"},
    {"a << b + c", "(a << (b + c))"},
    {"a + b << c", "((a + b) << c)"},
    {"a << b >> c", "((a << b) >> c)"},
    {"a & b << c", "(a & (b << c))"},
    {"a << b & c", "((a << b) & c)"},
    {"a | b & c", "(a | (b & c))"},
    {"a & b | c", "((a & b) | c)"},
    {"a ^ b & c", "(a ^ (b & c))"},
    {"a | b ^ c", "(a | (b ^ c))"},
    {"a ^ b | c", "((a ^ b) | c)"},
    {"a & b & c", "((a & b) & c)"},
    {"a == b | c", "(a == (b | c))"},
    {"a | b < c", "((a | b) < c)"},
    {"a & (b == c)", "(a & (b == c))"},
    {"a + b <= c * d", "((a + b) <= (c * d))"},
    {"(a < b) & (c > d)", "((a < b) & (c > d))"},
    {"a if p else b", "(a if p else b)"},
    {"a if p else b if q else c", "(a if p else (b if q else c))"},
    {"(a if p else b) if q else c", "((a if p else b) if q else c)"},
    {"a if p and q else b + c", "(a if (p and q) else (b + c))"},
    {"a + b if p or q else -c", "((a + b) if (p or q) else (-c))"},
    {"a if (p if q else r) else b", "(a if (p if q else r) else b)"},
    {"-a.exp()", "(-a.exp())"},
    {"a.exp() ** b", "(a.exp() ** b)"},
    {"a ** b.exp()", "(a ** b.exp())"},
    {"-a.exp().log()", "(-a.exp().log())"},
    {"exp(a) + b", "(exp(a) + b)"},
    {"exp(a + b * c)", "exp((a + (b * c)))"},
    {"(a + b).exp()", "(a + b).exp()"},
    {"(-a).exp()", "(-a).exp()"},
    {"(a if p else b).exp()", "(a if p else b).exp()"},
    {"a == (b if p else c)", "(a == (b if p else c))"},
    {"a + (b if p else c) * d", "(a + ((b if p else c) * d))"},
    {"a - -b", "(a - (-b))"},
    {"a ** (b if p else c)", "(a ** (b if p else c))"},
    {"(a == b) + c", "((a == b) + c)"},
    {"1 + 2 * 3", "(1 + (2 * 3))"},
    {"-1 ** 2", "(-(1 ** 2))"},
    {"0x1f + 1_000", "(31 + 1000)"},
    {"1.5e3 - .5", "(1500.0 - 0.5)"},
    {"max(a, b if p else c)", "max(a, (b if p else c))"},
};
constexpr TreeRow kChoices[] = {
    {"not p and q", "((not p) and q)"},
    {"not p or q", "((not p) or q)"},
    {"p or q and r", "(p or (q and r))"},
    {"p and q or r", "((p and q) or r)"},
    {"p or q or r", "((p or q) or r)"},
    {"p and q and r", "((p and q) and r)"},
    {"not not p", "(not (not p))"},
    {"not a.dtype == b.dtype", "(not (a.dtype == b.dtype))"},
    {"a.dtype == b.dtype and p", "((a.dtype == b.dtype) and p)"},
    {"p == q", "(p == q)"},
    {"p != (not q)", "(p != (not q))"},
};

TEST(Parse, PrecedenceIsPythons) {
  for (const TreeRow& row : kValues) EXPECT_EQ(tree(row.text), row.tree);
  // A choice is no result.
  for (const TreeRow& row : kChoices)
    EXPECT_EQ(tree(std::string("1 if ") + row.text + " else 2"),
              std::string("(1 if ") + row.tree + " else 2)");
}

TEST(Parse, StatementsEndWithTheLineOrASemicolon) {
  const std::string wanted = "y = a.exp()\ny = (y + 1)\nreturn y, (y * a)";
  EXPECT_EQ(tree("y = a.exp()\ny = y + 1\nreturn y, y * a"), wanted);
  EXPECT_EQ(tree("y = a.exp(); y = y + 1; return y, y * a;"), wanted);
  EXPECT_EQ(tree("\n# One.\n;;\n  y = a.exp() # Zwölf.\r\n\ty = (y\n + # …\n\n 1)\n\ny, y * a\n\n"),
            wanted);
  EXPECT_EQ(tree("exp(\na\n)"), "exp(a)");
  EXPECT_EQ(tree("a # the end"), "a");
}

TEST(Parse, NumbersArePythons) {
  const TreeRow rows[] = {{"0", "0"},
                          {"00", "0"},
                          {"1_000", "1000"},
                          {"0x_fF", "255"},
                          {"0o17", "15"},
                          {"0b101", "5"},
                          {"9223372036854775807", "9223372036854775807"},
                          {"1.", "1.0"},
                          {".5", "0.5"},
                          {"0e0", "0.0"},
                          {"1E5", "1e+05"},
                          {"1_0.0_1e-1_0", "1.001e-09"},
                          {"5e-324", "5e-324"},
                          {"0.1", "0.1"},
                          {"1e22", "1e+22"},
                          {"1..exp()", "(1.0).exp()"},
                          {"1.5.exp()", "(1.5).exp()"},
                          {"(2).exp()", "(2).exp()"}};
  for (const TreeRow& row : rows) EXPECT_EQ(tree(row.text), row.tree) << row.text;
}

TEST(Parse, ArgumentsMayHaveKeywords) {
  EXPECT_EQ(tree("clamp(a, 0, 1)"), "clamp(a, min=0, max=1)");
  EXPECT_EQ(tree("a.clamp(max=1)"), "a.clamp(max=1)");
  EXPECT_EQ(tree("clamp(a, max=1, min=None)"), "clamp(a, max=1, min=None)");
  EXPECT_EQ(tree("gelu(a, 'tanh',)"), "gelu(a, approximate=\"tanh\")");
  EXPECT_EQ(tree("var(a, 1)"), "var(a, correction=1)");
  EXPECT_EQ(tree("lerp(a, b, weight=0.5)"), "lerp(a, b, weight=0.5)");
  EXPECT_EQ(tree("a.to(b.dtype).float()"), "a.to(b.dtype).float()");
  EXPECT_EQ(tree("float(a) + row() * columns()"), "(float(a) + (row() * columns()))");
}

TEST(Parse, FreeNamesBecomeTensors) {
  const Formula formula("t = y * x + e\nx = t - pi\nreturn x, t, y");
  ASSERT_EQ(formula.parameters().size(), 2u);
  EXPECT_EQ(formula.parameters()[0].name, "y");
  EXPECT_EQ(formula.parameters()[1].name, "x");
  EXPECT_EQ(formula.parameters()[1].kind, Parameter::Kind::kTensor);
  EXPECT_FALSE(formula.parameters()[1].is_optional);
  EXPECT_EQ(formula.num_results(), 3u);
  EXPECT_TRUE(Formula("1 + 2").parameters().empty());
  // Behind those that are declared.
  std::vector<Parameter> parameters = {{"x"}};
  const auto program = parse("y * x + z * x + y", &parameters, true);
  ASSERT_EQ(parameters.size(), 3u);
  EXPECT_EQ(parameters[1].name, "y");
  EXPECT_EQ(parameters[2].name, "z");
}

TEST(Parse, ParametersAndVariablesHideConstantsButNotFunctions) {
  EXPECT_EQ(Formula("e * 2", {{"e"}}).parameters().size(), 1u);
  EXPECT_EQ(Formula("max = max(x)\nreturn max - x").parameters().size(), 1u);
}

// Returns what is said about the text: the first line.
std::string refusal(const std::string& text) {
  try {
    const Formula formula(text);
  } catch (const SyntaxError& error) {
    const std::string what = error.what();
    return what.substr(0, what.find('\n'));
  }
  return "no error";
}

std::string repeated(std::string_view part, size_t count) {
  std::string all;
  while (count-- > 0) all += part;
  return all;
}

TEST(Limits, OfTheText) {
  const std::string longest = "x" + std::string(kMaxText - 1, ' ');
  EXPECT_EQ(refusal(longest), "no error");
  EXPECT_EQ(refusal(longest + " "),
            "line 1, column 1: found a formula of 65537 bytes, wanted at most 65536; split it in "
            "two");
}

TEST(Limits, OfNesting) {
  // Texts that are nested 200 times, and 201 times.
  const std::pair<const char*, const char*> kinds[] = {
      {"(", ")"}, {"exp(", ")"}, {"-", ""}, {"x ** ", ""}, {"x if x.dtype == float16 else ", ""},
      {"-(", ")"}};
  for (const auto& [before, after] : kinds) {
    const bool is_double = std::string_view(before) == "-(";
    const size_t most = is_double ? 100 : 200;
    const auto nested = [&](size_t count) {
      return repeated(before, count) + "x" + repeated(after, count);
    };
    EXPECT_EQ(refusal(nested(most)), "no error") << before;
    const std::string what = refusal(nested(most + 1));
    EXPECT_TRUE(
        what.ends_with("found more than 200 nested parentheses, calls, signs and powers, "
                       "wanted at most that many; assign a part to a variable first"))
        << before << ": " << what;
  }
}

TEST(Limits, OfResults) {
  EXPECT_EQ(Formula("x" + repeated(", x", 31)).num_results(), 32u);
  EXPECT_EQ(refusal("x" + repeated(", x", 32)),
            "line 1, column 98: found more than 32 results, wanted at most that many");
}

TEST(Hostile, TextsAreRefusedOrCostLittle) {
  for (const char symbol :
       std::string_view("+-*/%~&|^<>=(),.;#!\"'\\@[]{}?:$`\0\x7f\x80\xff", 34)) {
    const std::string what = refusal(std::string(kMaxText, symbol));
    EXPECT_TRUE(what.starts_with("line 1, column ")) << what;
    EXPECT_LT(what.size(), 300u);
  }
  EXPECT_NE(refusal(std::string(10000, '(') + "x" + std::string(10000, ')')), "no error");
  EXPECT_NE(refusal(std::string(10000, '(')), "no error");
  EXPECT_NE(refusal("x" + std::string(10000, ')')), "no error");
  EXPECT_NE(refusal(repeated("not ", 16000) + "x"), "no error");
  EXPECT_NE(refusal(std::string(60 << 10, 'x')), "no error");
  EXPECT_NE(refusal(std::string(60 << 10, '1')), "no error");
  EXPECT_NE(refusal("\"" + std::string(60 << 10, 'a')), "no error");
  EXPECT_NE(refusal(std::string("x\0y", 3)), "no error");
  // No recursion, no matter how long the chain.
  EXPECT_EQ(refusal("x" + repeated("+x", 32000)), "no error");
  EXPECT_EQ(refusal("x" + repeated(".exp()", 10000)), "no error");
  EXPECT_EQ(refusal("1 if True" + repeated(" and True", 7000) + " else x"), "no error");
  EXPECT_EQ(refusal(repeated("x=x+1\n", 10000) + "x"), "no error");
}

}  // namespace
}  // namespace opdock::formula
