// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "formula/operators.h"
#include "formula/program.h"

namespace opdock::formula {
namespace {

Binding binding_of_op(Op op) {
  for (const BinaryOperator& one : kBinaryOperators)
    if (one.op == op) return one.binding;
  return Binding::kAtom;
}

Binding tighter(Binding binding) {
  return static_cast<Binding>(static_cast<int>(binding) + 1);
}

Binding binding_of(const Expr& expr) {
  switch (expr.form) {
    case Form::kConditional:
      return Binding::kAny;
    case Form::kOr:
      return Binding::kOr;
    case Form::kAnd:
      return Binding::kAnd;
    case Form::kNot:
      return Binding::kNot;
    case Form::kSame:
      return Binding::kCompare;
    case Form::kBinary:
      return binding_of_op(expr.op);
    case Form::kUnary:
      return Binding::kSign;
    case Form::kInteger:
    case Form::kReal:
      return Binding::kNumber;
    default:
      return Binding::kAtom;
  }
}

std::string text_of_real(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Makes the texts of the expressions in their order, each from those of its operands.
class Printer {
 public:
  Printer(const Program& program, Parentheses parentheses)
      : program_(program), parentheses_(parentheses), texts_(program.exprs.size()) {}
  std::string print();

 private:
  std::string text(const Expr& expr);
  std::string call(const Expr& expr);
  std::string statements() const;
  std::string results() const;
  // Moves the text of an operand out, in parentheses if it binds less than `least`.
  std::string operand(ExprId id, Binding least);

  const Program& program_;
  Parentheses parentheses_;
  std::vector<std::string> texts_;
};

std::string Printer::operand(ExprId id, Binding least) {
  std::string text = std::move(texts_[static_cast<size_t>(id)]);
  const Binding binding = binding_of(program_[id]);
  // In kAll every operand but a number already has its parentheses.
  if (binding >= least || (parentheses_ == Parentheses::kAll && binding != Binding::kNumber))
    return text;
  return "(" + std::move(text) + ")";
}

std::string Printer::call(const Expr& expr) {
  // The operands are written in the order of the text, which decides about the order of parameters.
  // Later expressions have larger numbers.
  std::array<size_t, 3> order = {0, 1, 2};
  std::sort(order.begin(), order.end(),
            [&](size_t i, size_t j) { return expr.args[i] < expr.args[j]; });
  std::string text, separator;
  if (expr.is_method) text = operand(expr.args[0], Binding::kReceiver) + ".";
  text += expr.function->name;
  text += "(";
  for (const size_t i : order) {
    if (expr.args[i] == kNoExpr || (i == 0 && expr.is_method)) continue;
    text += separator;
    separator = ", ";
    const std::string_view keyword = expr.function->keywords[i];
    if (!keyword.empty()) text += std::string(keyword) + "=";
    text += operand(expr.args[i], Binding::kAny);
  }
  return text + ")";
}

std::string Printer::text(const Expr& expr) {
  const auto two = [&](std::string_view symbol, Binding left, Binding right) {
    std::string text = operand(expr.args[0], left);
    text += " " + std::string(symbol) + " ";
    return text += operand(expr.args[1], right);
  };
  const Binding binding = binding_of(expr);
  switch (expr.form) {
    case Form::kInteger:
      return std::to_string(expr.integer);
    case Form::kReal:
      return text_of_real(expr.real);
    case Form::kString: {
      const char quote = expr.text.find('"') == std::string_view::npos ? '"' : '\'';
      return quote + std::string(expr.text) + quote;
    }
    case Form::kUnary:
      return std::string(expr.text) + operand(expr.args[0], Binding::kSign);
    case Form::kNot:
      return "not " + operand(expr.args[0], Binding::kNot);
    case Form::kBinary:
      if (binding == Binding::kPower) return two("**", Binding::kNumber, Binding::kSign);
      if (binding == Binding::kCompare) return two(expr.text, tighter(binding), tighter(binding));
      return two(expr.text, binding, tighter(binding));
    case Form::kSame:
      return two(expr.text, tighter(binding), tighter(binding));
    case Form::kAnd:
    case Form::kOr:
      return two(expr.text, binding, tighter(binding));
    case Form::kConditional: {
      std::string text = operand(expr.args[0], Binding::kOr);
      text += " if " + operand(expr.args[1], Binding::kOr);
      return text += " else " + operand(expr.args[2], Binding::kAny);
    }
    case Form::kCall:
      return call(expr);
    case Form::kDtype:
      return operand(expr.args[0], Binding::kReceiver) + ".dtype";
    default:
      return std::string(expr.text);
  }
}

std::string Printer::print() {
  for (size_t i = 0; i < program_.exprs.size(); ++i) {
    const Expr& expr = program_.exprs[i];
    texts_[i] = text(expr);
    const Binding binding = binding_of(expr);
    if (parentheses_ == Parentheses::kAll && binding < Binding::kNumber)
      texts_[i] = "(" + std::move(texts_[i]) + ")";
  }
  return statements() + (program_.statements.empty() ? "" : "return ") + results();
}

std::string Printer::statements() const {
  std::string out;
  ExprId chunk = kNoExpr;  // of the statement that is being written
  for (const Statement& one : program_.statements) {
    const Expr& value = program_[one.value];
    const bool is_part = value.form == Form::kPart;
    if (is_part && value.args[0] == chunk) {
      out += ", ";
    } else if (chunk != kNoExpr) {
      out += " = " + texts_[static_cast<size_t>(chunk)] + "\n";
    }
    chunk = is_part ? value.args[0] : kNoExpr;
    out += one.name;
    if (!is_part) out += " = " + texts_[static_cast<size_t>(one.value)] + "\n";
  }
  if (chunk != kNoExpr) out += " = " + texts_[static_cast<size_t>(chunk)] + "\n";
  return out;
}

std::string Printer::results() const {
  std::string out;
  for (size_t i = 0; i < program_.results.size(); ++i) {
    const Part& part = program_.result_parts[i];
    out += i == 0 ? "" : ", ";
    if (part.parts > 1 && part.part == 0) out += "cat(";
    out += texts_[static_cast<size_t>(program_.results[i])];
    if (part.parts > 1 && part.part + 1 == part.parts) out += ")";
  }
  return out;
}

}  // namespace

std::string print(const Program& program, Parentheses parentheses) {
  return Printer(program, parentheses).print();
}

std::string Formula::text() const {
  return print(*program_, Parentheses::kNeeded);
}

}  // namespace opdock::formula
