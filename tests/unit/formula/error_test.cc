// Tests what is said about faulty formulas, word by word.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cctype>

#include "formula/formula.h"

namespace opdock::formula {
namespace {

using ParameterKind = Parameter::Kind;

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool mentions(std::string_view text, std::string_view name) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; ++at) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_part_of_name(text[at - 1])) &&
        (end == text.size() || !is_part_of_name(text[end])))
      return true;
  }
  return false;
}

// Returns what is said about the text, over those of the parameters x, w (which is optional), eps,
// flag and mode that it mentions, and `more`.
std::string error_of(std::string_view text, std::vector<Parameter> more = {}) {
  for (const Parameter& one : std::initializer_list<Parameter>{{"x"},
                                                               {"w", ParameterKind::kTensor, true},
                                                               {"eps", ParameterKind::kFloat},
                                                               {"flag", ParameterKind::kBool},
                                                               {"mode", ParameterKind::kString}})
    if (mentions(text, one.name)) more.push_back(one);
  try {
    const Formula formula(text, more);
  } catch (const SyntaxError& error) {
    const std::string what = error.what();
    const std::string place =
        "line " + std::to_string(error.line) + ", column " + std::to_string(error.column) + ": ";
    EXPECT_TRUE(what.starts_with(place) || what.starts_with("parameter ")) << what;
    return what;
  }
  return "no error";
}

// A faulty text of one line, the column of the mark, and what is said.
struct Faulty {
  const char* text;
  size_t column;
  const char* what;
};
constexpr Faulty kFaulty[] = {
    {"# nothing", 1, "found an empty formula, wanted an expression, or statements and \"return\""},
    {"a = x", 6, "found the end of the formula, wanted a last line with the results: \"return a\""},
    {"return", 7,
     "found the end of the formula, wanted a value: a name, a number, a call or \"(\""},
    {"return x,", 10,
     "found the end of the formula, wanted a value: a name, a number, a call or \"(\""},
    {"a = x; a = x + 1; return a", 1,
     "found a value of \"a\" that nothing uses before the next one, wanted a use; remove this "
     "statement"},
    {"a, b = x, x", 8, "found \"x\", wanted one name before \"=\", or chunk(x, 2) behind it"},
    {"f(x) = x", 1, "found \"f\", wanted a function; docs/reference/formulas.md lists them"},
    {"if = x", 1, "found \"if\", wanted another name, because this one is a word of the language"},
    {"float16 = x", 1,
     "found \"float16\", wanted another name, because this one is a word of the language"},
    {"x y", 3, "found \"y\", wanted an operator or the end of the line"},
    {"x is None", 3,
     "found \"is\", wanted an operator; compare with == and !=, or write \"a if weight else b\""},
    {"(x", 3, "found the end of the formula, wanted \")\" for the \"(\" before"},
    {"x)", 2, "found \")\", wanted an operator or the end of the line"},
    {"(x, x)", 3, "found \",\", wanted \")\"; there are no tuples"},
    {"x +", 4, "found the end of the formula, wanted a value: a name, a number, a call or \"(\""},
    {"x + * 2", 5, "found \"*\", wanted a value: a name, a number, a call or \"(\""},
    {"x ** not flag", 6,
     "found \"not\", wanted a value after \"**\"; put \"not …\" in parentheses"},
    {"x if flag", 10,
     "found the end of the formula, wanted \"else\", because of the \"if\" before"},
    {"x if flag else", 15,
     "found the end of the formula, wanted a value: a name, a number, a call or \"(\""},
    {"()", 2, "found \")\", wanted a value: a name, a number, a call or \"(\""},
    {"exp(x", 6, "found the end of the formula, wanted \",\" or \")\" in the call of exp"},
    {"exp(x; x)", 6, "found \";\", wanted \",\" or \")\" in the call of exp"},
    {"exp(x x)", 7, "found \"x\", wanted \",\" or \")\" in the call of exp"},
    {"exp x", 1, "found \"exp\", wanted a value; to call the function write exp(a)"},
    {"exp", 1, "found \"exp\", wanted a value; to call the function write exp(a)"},
    {"exp()", 1, "found 0 arguments, wanted exp(a)"},
    {"exp(x, x)", 8, "found too many arguments, wanted exp(a)"},
    {"where(x, 1)", 1, "found 2 arguments, wanted where(a, b, c)"},
    {"row(x)", 5, "found too many arguments, wanted row()"},
    {"x.row()", 3, "found \"row\", wanted a function of the tensor; row() has no argument"},
    {"x.columns()", 3,
     "found \"columns\", wanted a function of the tensor; columns() has no argument"},
    {"clamp(x)", 1, "found clamp without limits, wanted min=…, max=… or both"},
    {"clamp(x, None)", 1, "found clamp without limits, wanted min=…, max=… or both"},
    {"clamp(x, min=None, max=None)", 1, "found clamp without limits, wanted min=…, max=… or both"},
    {"clamp(x, 0, min=1)", 13,
     "found the argument \"min\" twice, wanted it once: clamp(x, min=None, max=None)"},
    {"clamp(x, min=1, min=2)", 17,
     "found the argument \"min\" twice, wanted it once: clamp(x, min=None, max=None)"},
    {"clamp(x, minimum=1)", 10,
     "found \"minimum\", wanted a keyword of clamp(x, min=None, max=None)"},
    {"clamp(x, min=1, 2)", 17,
     "found \"2\", wanted keyword=value, as after each argument with a keyword: clamp(x, min=None, "
     "max=None)"},
    {"clamp(min=1)", 1, "found 1 argument, wanted clamp(x, min=None, max=None)"},
    {"add(a=x, b=x)", 5, "found \"a\", wanted a keyword of add(a, b)"},
    {"softplux(x)", 1, "found \"softplux\", wanted a function; did you mean softplus?"},
    {"x.reluu()", 3, "found \"reluu\", wanted a method; did you mean relu?"},
    {"fmax(x, x)", 1, "found \"fmax\", wanted a function; did you mean amax, fma or max?"},
    {"torch_compile(x)", 1,
     "found \"torch_compile\", wanted a function; docs/reference/formulas.md lists them"},
    {"y", 1, "found \"y\", wanted a parameter, or a variable that was assigned before"},
    {"exx", 1, "found \"exx\", wanted a parameter, or a variable that was assigned before"},
    {"x.shape", 3, "found \"shape\", wanted \".dtype\", or parentheses after the name of a method"},
    {"x.shape()", 3, "found \"shape\", wanted a method; docs/reference/formulas.md lists them"},
    {"x.2", 2, "found \".2\", wanted an operator or the end of the line"},
    {"x.", 3, "found the end of the formula, wanted the name of a method, or dtype"},
    {"x[0]", 2,
     "found \"[\", wanted an operator; a formula sees one element of each tensor and cannot index"},
    {"x @ x", 3, "found \"@\", wanted an operator; a formula has no product of matrices"},
    {"x ? x : x", 3,
     "found \"?\", wanted an operator; write a if choice else b, or where(c, a, b)"},
    {"x && x", 3,
     "found \"&&\", wanted an operator; write & between tensors, and \"and\" between choices"},
    {"x || x", 3,
     "found \"||\", wanted an operator; write | between tensors, and \"or\" between choices"},
    {"!x", 1, "found \"!\", wanted an operator; write ~ for a tensor, and \"not\" for a choice"},
    {"x != !x", 6,
     "found \"!\", wanted an operator; write ~ for a tensor, and \"not\" for a choice"},
    {"x += 1", 3, "found \"+=\", wanted an operator; write x = x + y"},
    {"x <> 1", 3, "found \"<>\", wanted an operator; write !="},
    {"x \\ x", 3,
     "found \"\\\", wanted an operator; a line goes on in the next one within parentheses"},
    {"x $ x", 3,
     "found \"$\", wanted a letter, a digit or an operator of ASCII; other characters may stand in "
     "comments"},
    {"`x`", 1,
     "found \"`\", wanted a letter, a digit or an operator of ASCII; other characters may stand in "
     "comments"},
    {"\"x", 1, "found a string without an end, wanted '\"' on the same line"},
    {"1x", 1, "found \"1x\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"1__0", 1, "found \"1__0\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"1_", 1, "found \"1_\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"0x", 1, "found \"0x\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"0xg", 1, "found \"0xg\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"0b12", 1, "found \"0b12\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"0o8", 1, "found \"0o8\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"012", 1,
     "found \"012\", wanted an integer without zeros before it; an octal one begins with 0o"},
    {"1.5.", 5, "found the end of the formula, wanted the name of a method, or dtype"},
    {"1e", 1, "found \"1e\", wanted a number such as 1, 0x1f, 1.5 or 1e-5"},
    {"1e999", 1,
     "found the number \"1e999\", wanted one that a float64 can hold: 0, or between 4.94e-324 and "
     "1.797e308; infinity is inf"},
    {"1e-999", 1,
     "found the number \"1e-999\", wanted one that a float64 can hold: 0, or between 4.94e-324 and "
     "1.797e308; infinity is inf"},
    {"9223372036854775808", 1,
     "found the integer \"9223372036854775808\", wanted at most 9223372036854775807; write it as a "
     "float"},
    {"0xffffffffffffffff", 1,
     "found the integer \"0xffffffffffffffff\", wanted at most 9223372036854775807; write it as a "
     "float"},
    {"x < x < x", 7,
     "found \"<\", wanted one comparison; write (a < b) & (b < c), or \"and\" between choices"},
    {"flag == flag == flag", 14,
     "found \"==\", wanted one comparison; write (a < b) & (b < c), or \"and\" between choices"},
    {"x and x", 1,
     "found a tensor or a number, wanted a choice, which is known when a kernel is chosen; between "
     "tensors write & or logical_and(a, b)"},
    {"flag and x", 10,
     "found a tensor or a number, wanted a choice, which is known when a kernel is chosen; between "
     "tensors write & or logical_and(a, b)"},
    {"flag or x", 9,
     "found a tensor or a number, wanted a choice, which is known when a kernel is chosen; between "
     "tensors write | or logical_or(a, b)"},
    {"not x", 5,
     "found a tensor or a number, wanted a choice, which is known when a kernel is chosen; for a "
     "tensor write ~ or logical_not(a)"},
    {"x if x else x", 6,
     "found a tensor or a number, wanted a choice, which is known when a kernel is chosen; between "
     "tensors write where(condition, a, b)"},
    {"x if mode else x", 6,
     "found a string, wanted a choice, which is known when a kernel is chosen; between tensors "
     "write where(condition, a, b)"},
    {"flag", 1,
     "found a choice, wanted a tensor or a number; a choice selects one of two values: a if choice "
     "else b"},
    {"flag + 1", 1,
     "found a choice, wanted a tensor or a number; a choice selects one of two values: a if choice "
     "else b"},
    {"x + flag", 5,
     "found a choice, wanted a tensor or a number; a choice selects one of two values: a if choice "
     "else b"},
    {"-flag", 2,
     "found a choice, wanted a tensor or a number; a choice selects one of two values: a if choice "
     "else b"},
    {"mode", 1,
     "found a string, wanted a tensor or a number; a string can be compared with a parameter: mode "
     "== \"tanh\""},
    {"x + mode", 5,
     "found a string, wanted a tensor or a number; a string can be compared with a parameter: mode "
     "== \"tanh\""},
    {"x == mode", 3,
     "found a comparison of a tensor or a number and a string, wanted two strings: mode == "
     "\"tanh\""},
    {"mode == \"a\" + 1", 9,
     "found a string, wanted a tensor or a number; a string can be compared with a parameter: mode "
     "== \"tanh\""},
    {"mode < \"tanh\"", 6, "found \"<\" between a string and a string, wanted == or !="},
    {"x.dtype", 3,
     "found a type, wanted a tensor or a number; a type can be compared, x.dtype == float16, and "
     "given to x.to(float16)"},
    {"x.dtype == x", 9,
     "found a comparison of a type and a tensor or a number, wanted two types: x.dtype == float16"},
    {"x.dtype < float16", 9, "found \"<\" between a type and a type, wanted == or !="},
    {"x + float16", 5,
     "found a type, wanted a tensor or a number; a type can be compared, x.dtype == float16, and "
     "given to x.to(float16)"},
    {"float16.dtype", 1,
     "found a type, wanted a tensor or a number; a type can be compared, x.dtype == float16, and "
     "given to x.to(float16)"},
    {"None", 1, "found None, wanted a tensor or a number"},
    {"x + None", 5, "found None, wanted a tensor or a number"},
    {"x == None", 3,
     "found a comparison of None and a tensor or a number, wanted an optional parameter by itself"},
    {"None == None", 6,
     "found a comparison of None and None, wanted an optional parameter by itself"},
    {"x if None else x", 6,
     "found None, wanted a choice, which is known when a kernel is chosen; between tensors write "
     "where(condition, a, b)"},
    {"flag == x", 9, "found a tensor or a number, wanted a choice to compare with one"},
    {"flag == w", 9, "found a tensor or a number, wanted a choice to compare with one"},
    {"flag < flag", 6, "found \"<\" between a choice and a choice, wanted == or !="},
    {"flag == \"tanh\"", 9, "found a string, wanted a choice to compare with one"},
    {"x if flag else mode", 3,
     "found a tensor or a number before \"if\" and a string after \"else\", wanted two of the same "
     "kind"},
    {"1 if flag else flag", 3,
     "found a tensor or a number before \"if\" and a choice after \"else\", wanted two of the same "
     "kind"},
    {"None if flag else x", 6,
     "found None before \"if\" and a tensor or a number after \"else\", wanted two of the same "
     "kind"},
    {"gelu(x, approximate=\"exact\")", 21,
     "found approximate=\"exact\", wanted \"none\" or \"tanh\""},
    {"gelu(x, approximate=flag)", 21, "found a choice, wanted approximate=\"none\" or \"tanh\""},
    {"gelu(x, approximate=1)", 21,
     "found a tensor or a number, wanted approximate=\"none\" or \"tanh\""},
    {"gelu(x, 1)", 9, "found a tensor or a number, wanted approximate=\"none\" or \"tanh\""},
    {"x.to(x)", 6, "found a tensor or a number, wanted a type: x.to(float16) or x.to(y.dtype)"},
    {"x.to(float)", 6, "found \"float\", wanted a value; the type is float32"},
    {"x.to(flot16)", 6,
     "found \"flot16\", wanted a parameter, or a variable that was assigned before; did you mean "
     "float16 or bfloat16?"},
    {"x.to(\"float16\")", 6, "found a string, wanted a type: x.to(float16) or x.to(y.dtype)"},
    {"exp(flag)", 5,
     "found a choice, wanted a tensor or a number; a choice selects one of two values: a if choice "
     "else b"},
    {"softmax(\"a\")", 9,
     "found a string, wanted a tensor or a number; a string can be compared with a parameter: mode "
     "== \"tanh\""},
    {"sin.x", 1, "found \"sin\", wanted a value; to call the function write sin(a)"},
    {"True.dtype + 1", 6,
     "found a type, wanted a tensor or a number; a type can be compared, x.dtype == float16, and "
     "given to x.to(float16)"},
    {"x * (1 if w else w if flag else x.dtype)", 20,
     "found a tensor or a number before \"if\" and a type after \"else\", wanted two of the same "
     "kind"},
};

TEST(FormulaErrors, NameThePlaceAndTheRemedy) {
  for (const Faulty& row : kFaulty) {
    const std::string wanted = "line 1, column " + std::to_string(row.column) + ": " + row.what +
                               "\n  " + row.text + "\n  " + std::string(row.column - 1, ' ') + "^";
    EXPECT_EQ(error_of(row.text), wanted);
  }
}

TEST(FormulaErrors, ShowTheLineSafely) {
  const std::pair<std::string, const char*> rows[] = {
      {"",
       "line 1, column 1: found an empty formula, wanted an expression, or statements and "
       "\"return\"\n"
       "  \n"
       "  ^"},
      {"a = x\na = a + 1\nb = a",
       "line 3, column 6: found the end of the formula, wanted a last line with the results: "
       "\"return b\"\n"
       "  b = a\n"
       "       ^"},
      {"return x\ny = x",
       "line 2, column 1: found \"y\", wanted the end of the formula after \"return\"\n"
       "  y = x\n"
       "  ^"},
      {"x\nreturn x",
       "line 1, column 1: found an expression that nothing uses, wanted \"name = …\", or \"return "
       "…\" in the last line\n"
       "  x\n"
       "  ^"},
      {"x = x + 1\nx = 2\nreturn x",
       "line 1, column 1: found a value of \"x\" that nothing uses before the next one, wanted a "
       "use; remove this statement\n"
       "  x = x + 1\n"
       "  ^"},
      {"a = x\nb = a\nreturn x",
       "line 2, column 1: found the variable \"b\" that nothing uses, wanted a use; remove this "
       "statement\n"
       "  b = a\n"
       "  ^"},
      {"x · x",
       "line 1, column 3: found the character U+00B7, wanted \"*\"\n"
       "  x \\u00b7 x\n"
       "    ^"},
      {"x − 1",
       "line 1, column 3: found the character U+2212, wanted \"-\"\n"
       "  x \\u2212 1\n"
       "    ^"},
      {"x\t+\tπ",
       "line 1, column 5: found the character U+03C0, wanted \"pi\"\n"
       "  x\t+\t\\u03c0\n"
       "   \t \t^"},
      {"\tx + \xff"
       "",
       "line 1, column 6: found the byte 0xFF, wanted a letter, a digit or an operator of ASCII; "
       "other characters may stand in comments\n"
       "  \tx + \\xff\n"
       "  \t    ^"},
      {"x \xe2\x80\xae"
       " y",
       "line 1, column 3: found the character U+202E, wanted a letter, a digit or an operator of "
       "ASCII; other characters may stand in comments\n"
       "  x \\u202e y\n"
       "    ^"},
      {std::string("x\x00", 2),
       "line 1, column 2: found the character U+0000, wanted a letter, a digit or an operator of "
       "ASCII; other characters may stand in comments\n"
       "  x\\x00\n"
       "   ^"},
      {"x\x01\x1b"
       "[31m",
       "line 1, column 2: found the character U+0001, wanted a letter, a digit or an operator of "
       "ASCII; other characters may stand in comments\n"
       "  x\\x01\\x1b[31m\n"
       "   ^"},
      {"'x\n'",
       "line 1, column 1: found a string without an end, wanted \"'\" on the same line\n"
       "  'x\n"
       "  ^"},
      {"x == \"é\"",
       "line 1, column 7: found the character U+00E9, wanted a letter, a digit or an operator of "
       "ASCII; other characters may stand in comments\n"
       "  x == \"\\u00e9\"\n"
       "        ^"},
      {"x == \"a\\n\"",
       "line 1, column 8: found \"\\\" in a string, wanted only the characters themselves\n"
       "  x == \"a\\n\"\n"
       "         ^"},
      {"x == \"a\tb\"",
       "line 1, column 8: found the character U+0009, wanted a letter, a digit or an operator of "
       "ASCII; other characters may stand in comments\n"
       "  x == \"a\tb\"\n"
       "         ^"},
  };
  for (const auto& [text, wanted] : rows) EXPECT_EQ(error_of(text), wanted);
}

TEST(FormulaErrors, CutLongLinesAndNames) {
  const std::string many(60, '-'), spaces(60, ' ');
  EXPECT_EQ(
      error_of("x" + std::string(100, '-') + "* x" + std::string(100, '-') + "x"),
      "line 1, column 102: found \"*\", wanted a value: a name, a number, a call or \"(\"\n  …" +
          many + "* x" + std::string(37, '-') + "…\n   " + spaces + "^");
  const std::string what = error_of("x + " + std::string(60 << 10, 'y'));
  EXPECT_EQ(what, "line 1, column 5: found a name of 61440 letters, \"" + std::string(40, 'y') +
                      "…\", wanted at most 64\n  x + " + std::string(40, 'y') + "…\n      ^");
}

TEST(FormulaErrors, NameTheParameter) {
  EXPECT_EQ(error_of("x", {{"bias"}}),
            "parameter \"bias\": found no use in the formula, wanted one; use it or remove it");
  // A variable with the parameter's name is not the parameter.
  EXPECT_EQ(error_of("bias = x\nreturn bias", {{"bias"}}),
            "parameter \"bias\": found no use in the formula, wanted one; use it or remove it");
  EXPECT_EQ(error_of("x", {{"1st"}}),
            "parameter \"1st\": found no name, wanted letters, digits and _, at most 64 and no "
            "digit first");
  EXPECT_EQ(error_of("x", {{std::string(65, 'a')}}),
            "parameter \"" + std::string(40, 'a') +
                "…\": found a name of 65 letters, wanted letters, digits and _, at most 64 and no "
                "digit first");
  EXPECT_EQ(error_of("x", {{"if"}}),
            "parameter \"if\": found a word of the language, wanted another name");
  EXPECT_EQ(error_of("x", {{"bool"}}),
            "parameter \"bool\": found a word of the language, wanted another name");
  EXPECT_EQ(error_of("x", {{"y"}, {"y"}}),
            "parameter \"y\": found it twice, wanted different names");
}

TEST(FormulaErrors, SuggestSimilarNames) {
  const std::string wanted = "wanted a parameter, or a variable that was assigned before";
  EXPECT_EQ(error_of("epps * x", {{"eps"}}),
            "line 1, column 1: found \"epps\", " + wanted + "; did you mean eps?\n  epps * x\n  ^");
  EXPECT_EQ(error_of("Eps * x", {{"eps"}}),
            "line 1, column 1: found \"Eps\", " + wanted + "; did you mean eps?\n  Eps * x\n  ^");
  EXPECT_EQ(error_of("mean_x = mean(x)\nreturn x - maen_x"),
            "line 2, column 12: found \"maen_x\", " + wanted +
                "; did you mean mean_x?\n  return x - maen_x\n             ^");
  EXPECT_EQ(error_of("x + y"), "line 1, column 5: found \"y\", " + wanted + "\n  x + y\n      ^");
}

}  // namespace
}  // namespace opdock::formula
