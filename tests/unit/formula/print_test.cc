// Tests the layout of formulas, and that a printed formula is the same formula.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "formula/formula.h"

namespace opdock::formula {
namespace {

std::string graph_key(const Formula& formula) {
  return formula.graph(std::vector<Argument>(formula.parameters().size())).key();
}

TEST(Print, HasItsOwnLayout) {
  const std::pair<const char*, const char*> rows[] = {
      {"a+b", "a + b"},
      {"return a", "a"},
      {"((a)+(b*c))", "a + b * c"},
      {"(a+b)*c", "(a + b) * c"},
      {"a-(b-c)", "a - (b - c)"},
      {"(a-b)-c", "a - b - c"},
      {"a*(b*c)", "a * (b * c)"},
      {"(-a)**b", "(-a) ** b"},
      {"-(a**b)", "-a ** b"},
      {"a**(-b)", "a ** -b"},
      {"a**(b**c)", "a ** b ** c"},
      {"(a**b)**c", "(a ** b) ** c"},
      {"a*(-b)", "a * -b"},
      {"(-a)*b", "-a * b"},
      {"-(a*b)", "-(a * b)"},
      {"- - ~ + a.to(int8)", "--~+a.to(int8)"},
      {"(a<b)==(c<d)", "(a < b) == (c < d)"},
      {"row()<(column()|columns())", "row() < column() | columns()"},
      {"(a<b)|(c==d)", "(a < b) | (c == d)"},
      {"(a+b).exp()", "(a + b).exp()"},
      {"(-a).exp()", "(-a).exp()"},
      {"(a.exp()).log()", "a.exp().log()"},
      {"(2).exp()", "(2).exp()"},
      {"2**a", "2 ** a"},
      {"a.to ( float16 ) . dtype == b.dtype if 0 else 1", ""},
      {"a if(b.dtype==float16)else(c if b.dtype==int8 else d)",
       "a if b.dtype == float16 else c if b.dtype == int8 else d"},
      {"(a if b.dtype==int8 else c)if b.dtype==float16 else d",
       "(a if b.dtype == int8 else c) if b.dtype == float16 else d"},
      {"a if(not(a.dtype==int8)and(True or False))else b",
       "a if not a.dtype == int8 and (True or False) else b"},
      {"a if not(True and False)else b", "a if not (True and False) else b"},
      {"a if 'x'==\"y\"else b", "a if \"x\" == \"y\" else b"},
      {"a if 'x\"'==\"y'\"else b", "a if 'x\"' == \"y'\" else b"},
      {"clamp(a,0x10,max=1_0)", "clamp(a, min=16, max=10)"},
      {"clamp(a,max=b,min=c)", "clamp(a, max=b, min=c)"},
      {"t=a;t=t+1. # and so on\n(t,)", ""},
      {"t=a;t=t+1. # and so on\nt,pi*inf", "t = a\nt = t + 1.0\nreturn t, pi * inf"},
  };
  for (const auto& [text, wanted] : rows) {
    if (*wanted == '\0') {
      EXPECT_THROW(Formula{text}, SyntaxError) << text;
      continue;
    }
    EXPECT_EQ(Formula(text).text(), wanted);
    EXPECT_EQ(Formula(wanted).text(), wanted);
    EXPECT_EQ(graph_key(Formula(wanted)), graph_key(Formula(text))) << text;
  }
}

TEST(Print, KeepsOptionalParametersAndChoices) {
  using ParameterKind = Parameter::Kind;
  const std::vector<Parameter> parameters = {{"x"},
                                             {"weight", ParameterKind::kTensor, true},
                                             {"training", ParameterKind::kBool},
                                             {"mode", ParameterKind::kString}};
  const std::string text =
      "y = x * weight if weight != None else x\n"
      "return gelu(y, approximate=mode) if training or weight else y";
  EXPECT_EQ(Formula(text, parameters).text(), text);
}

// Makes formulas from random numbers: values of floats, so that no operation refuses its type.
class FormulaGenerator {
 public:
  explicit FormulaGenerator(unsigned seed) : random_(seed) {}

  std::string formula() {
    std::string text;
    names_ = {"x", "y"};
    for (int i = pick(4); i > 0; --i) {
      const std::string name = "t" + std::to_string(i);
      text += name + space() + "=" + value(4) + "\n";
      names_.push_back(name);
    }
    // Every variable is used.
    for (size_t i = 2; i < names_.size(); ++i) unused_.push_back(names_[i]);
    text += "return " + value(4);
    for (const std::string& name : unused_) text += "," + space() + name;
    unused_.clear();
    return text;
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  template <size_t n>
  std::string one_of(const char* const (&all)[n]) {
    return all[pick(static_cast<int>(n))];
  }
  std::string space() { return std::string(static_cast<size_t>(pick(2)), ' '); }
  std::string open(const std::string& text) { return "(" + space() + text + space() + ")"; }

  // Parentheses are left out at random, so that all precedences meet.
  std::string loose(int depth) { return pick(3) == 0 ? open(value(depth)) : value(depth); }
  std::string value(int depth) {
    static constexpr const char* kNumbers[] = {"1", "2.5", "0x10", "1e-3", "pi", "7_0", ".5"};
    static constexpr const char* kBinary[] = {"+", "-", "*", "/", "//", "%", "**"};
    static constexpr const char* kUnary[] = {"-", "+", "--"};
    static constexpr const char* kCalls[] = {"exp", "tanh", "relu", "gelu", "square", "half"};
    static constexpr const char* kTwo[] = {"max", "min", "hypot", "atan2"};
    if (depth == 0) return pick(3) == 0 ? one_of(kNumbers) : names_[random_() % names_.size()];
    switch (pick(9)) {
      case 0:
        return value(0);
      case 1:
        return one_of(kUnary) + loose(depth - 1);
      case 2:
        return one_of(kCalls) + open(value(depth - 1));
      case 3:
        return open(value(depth - 1)) + "." + one_of(kCalls) + "()";
      case 4:
        return one_of(kTwo) + open(value(depth - 1) + "," + value(depth - 1));
      case 5:
        return open(value(depth - 1) + " if " + choice(2) + " else " + loose(depth - 1));
      case 6:
        return "where(" + loose(depth - 1) + "<" + open(value(depth - 1)) + "," + value(depth - 1) +
               "," + value(depth - 1) + ")";
      default:
        return loose(depth - 1) + space() + one_of(kBinary) + space() + loose(depth - 1);
    }
  }
  std::string choice(int depth) {
    static constexpr const char* kChoices[] = {"True", "False", "x.dtype==float32",
                                               "y.dtype != float16", "'a'==\"b\""};
    if (depth == 0) return one_of(kChoices);
    switch (pick(4)) {
      case 0:
        return "not " + open(choice(depth - 1));
      case 1:
        return open(choice(depth - 1)) + " and " + choice(depth - 1);
      case 2:
        return choice(depth - 1) + " or " + open(choice(depth - 1));
      default:
        return choice(0);
    }
  }

  std::mt19937 random_;
  std::vector<std::string> names_, unused_;
};

TEST(Print, RandomFormulasStayTheSame) {
  FormulaGenerator generator(1);
  size_t letters = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = generator.formula();
    SCOPED_TRACE(text);
    const Formula formula(text);
    const std::string printed = formula.text();
    const Formula again(printed);
    EXPECT_EQ(again.text(), printed);
    ASSERT_EQ(again.parameters().size(), formula.parameters().size());
    EXPECT_EQ(graph_key(again), graph_key(formula)) << printed;
    letters += printed.size();
  }
  EXPECT_GT(letters, 100000u);
}

}  // namespace
}  // namespace opdock::formula
