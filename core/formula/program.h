// A parsed formula: the expressions as a tree, and the steps in which they are evaluated.
//
// The steps are a list, and an expression comes after those that it uses, so that a formula of any
// shape is lowered and printed by loops: a hostile one cannot exhaust the stack. Where a choice
// decides, a step skips those of the branch that is not taken. For `a * b if c else d` they are
//
//   c | skip 3 unless c | a, b, a * b | skip 1 if c | d | the conditional
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formula/builtins.h"
#include "formula/formula.h"

namespace opdock::formula {

// The kind of an expression, which is known without any argument.
enum class Kind : uint8_t {
  kValue,     // a number or an element of a tensor
  kOptional,  // an optional tensor or number by itself: a kValue, and the choice whether it is
              // there
  kChoice,    // true or false, and known when a kernel is chosen
  kFlag,      // True or False, which may be a kValue or a kChoice
  kString,
  kType,
  kParts,    // what chunk() returns
  kNothing,  // None
};

enum class Form : uint8_t {
  kInteger,
  kReal,
  kNamedNumber,  // pi, e, inf, nan: the number is in `real`
  kTrue,
  kFalse,
  kNothing,    // None
  kString,     // `text` is what stands between the quotes
  kType,       // `type`
  kParameter,  // number `parameter`
  kVariable,   // stands for the expression `definition`
  kUnary,      // "+" or `op`
  kBinary,     // `op`, also a comparison of values
  kSame,       // == or != of choices, strings, types, or of an optional parameter and None
  kNot,
  kAnd,
  kOr,
  kConditional,  // value, choice, other value, as in the text
  kCall,         // `function`
  kDtype,
  kPart,  // part number `integer` of the chunk() args[0]
};

using ExprId = int32_t;  // an expression's position in Program::exprs
inline constexpr ExprId kNoExpr = -1;

struct Expr {
  Form form = Form::kNothing;
  Kind kind = Kind::kValue;
  bool is_optional = false;  // it is an optional parameter by itself, of any kind
  bool is_method = false;    // a kCall that is written as a method's
  Type type = Type::kFloat32;
  Op op = Op::kConstant;
  uint32_t place = 0;     // in the source, for errors
  std::string_view text;  // as in the source: a name, an operator
  std::array<ExprId, 3> args = {kNoExpr, kNoExpr, kNoExpr};
  size_t parameter = 0;
  ExprId definition = kNoExpr;
  const Function* function = nullptr;
  size_t view = 0;  // of chunk() and grouped(): the position in Program::views
  int64_t integer = 0;
  double real = 0;
};

struct Step {
  ExprId expr = kNoExpr;  // what is evaluated; or the choice that decides about a skip
  size_t skip = 0;        // how many of the following steps are skipped; 0 evaluates
  bool when = false;      // the value of the choice for which they are
};

struct Statement {  // name = expression
  std::string_view name;
  uint32_t place = 0;
  ExprId value = kNoExpr;
  size_t end = 0;  // the number of steps up to here
  bool is_used = false;
};

// A view says how a formula sees a tensor: in equal parts, or as one number for each group of
// elements.
struct View {
  size_t parameter = 0;
  uint32_t parts = 1;  // of a chunk()
  bool is_grouped = false;
};
inline constexpr int64_t kMaxParts = 16;  // of one chunk()

struct Program {
  std::string source;
  std::vector<Expr> exprs;  // those that an expression uses come before it
  std::vector<Step> steps;
  std::vector<Statement> statements;  // all but the last, which is `results`
  std::vector<ExprId> results;
  std::vector<Part> result_parts;  // of cat(a, b)
  std::vector<View> views;         // each once
  // Whether a parameter is used other than by its views, its dtype and whether it is there.
  std::vector<bool> is_whole;

  const Expr& operator[](ExprId id) const { return exprs[static_cast<size_t>(id)]; }
};

// Parses a text over the parameters; if `is_open`, names that are not known become parameters,
// behind those that are there. Throws SyntaxError. Expressions refer to the program's source.
std::shared_ptr<const Program> parse(std::string_view text, std::vector<Parameter>* parameters,
                                     bool is_open);

// Returns the formula's text: with only the parentheses that it needs, or with one pair around
// each operation, which shows the tree.
enum class Parentheses : uint8_t { kNeeded, kAll };
std::string print(const Program& program, Parentheses parentheses);

}  // namespace opdock::formula
