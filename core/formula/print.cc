// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "formula/program.h"

namespace opdock::formula {
namespace {

// How tightly an expression binds; an operand that binds less than its place wants parentheses.
enum Binding : int {
  kAny,
  kOr,
  kAnd,
  kNot,
  kCompare,
  kBitOr,
  kBitXor,
  kBitAnd,
  kShift,
  kSum,
  kProduct,
  kSign,
  kPower,
  kNumber,    // (2).exp()
  kReceiver,  // before "."
  kAtom
};

Binding binding_of(Op op) {
  switch (op) {
    case Op::kBitwiseOr:
      return kBitOr;
    case Op::kBitwiseXor:
      return kBitXor;
    case Op::kBitwiseAnd:
      return kBitAnd;
    case Op::kShiftLeft:
    case Op::kShiftRight:
      return kShift;
    case Op::kAdd:
    case Op::kSub:
      return kSum;
    case Op::kMul:
    case Op::kDiv:
    case Op::kFloorDivide:
    case Op::kRemainder:
      return kProduct;
    case Op::kPow:
      return kPower;
    default:
      return kCompare;
  }
}

Binding binding_of(const Expr& expr) {
  switch (expr.form) {
    case Form::kConditional:
      return kAny;
    case Form::kOr:
      return kOr;
    case Form::kAnd:
      return kAnd;
    case Form::kNot:
      return kNot;
    case Form::kSame:
      return kCompare;
    case Form::kBinary:
      return binding_of(expr.op);
    case Form::kUnary:
      return kSign;
    case Form::kInteger:
    case Form::kReal:
      return kNumber;
    default:
      return kAtom;
  }
}

std::string number(double value) {
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
  // Moves the text of an operand out, in parentheses if it binds less than `least`.
  std::string operand(ExprId id, int least);

  const Program& program_;
  Parentheses parentheses_;
  std::vector<std::string> texts_;
};

std::string Printer::operand(ExprId id, int least) {
  std::string text = std::move(texts_[static_cast<size_t>(id)]);
  const Binding binding = binding_of(program_[id]);
  // In kAll all but numbers have theirs already.
  if (binding >= least || (parentheses_ == Parentheses::kAll && binding != kNumber)) return text;
  return "(" + std::move(text) + ")";
}

std::string Printer::call(const Expr& expr) {
  std::string text;
  size_t first = 0;
  if (expr.is_method) {
    text = operand(expr.args[0], kReceiver) + ".";
    first = 1;
  }
  text += expr.function->name;
  text += "(";
  bool is_first = true;
  for (size_t i = first; i < expr.args.size(); ++i) {
    if (expr.args[i] == kNoExpr) continue;
    if (!is_first) text += ", ";
    is_first = false;
    if (!expr.function->keywords[i].empty()) text += std::string(expr.function->keywords[i]) + "=";
    text += operand(expr.args[i], kAny);
  }
  return text + ")";
}

std::string Printer::text(const Expr& expr) {
  const auto two = [&](std::string_view symbol, int left, int right) {
    std::string text = operand(expr.args[0], left);
    text += " " + std::string(symbol) + " ";
    return text += operand(expr.args[1], right);
  };
  const int binding = binding_of(expr);
  switch (expr.form) {
    case Form::kInteger:
      return std::to_string(expr.integer);
    case Form::kReal:
      return number(expr.real);
    case Form::kString: {
      const char quote = expr.text.find('"') == std::string_view::npos ? '"' : '\'';
      return quote + std::string(expr.text) + quote;
    }
    case Form::kUnary:
      return std::string(expr.text) + operand(expr.args[0], kSign);
    case Form::kNot:
      return "not " + operand(expr.args[0], kNot);
    case Form::kBinary:
      if (binding == kPower) return two("**", kNumber, kSign);
      if (binding == kCompare) return two(expr.text, kCompare + 1, kCompare + 1);
      return two(expr.text, binding, binding + 1);
    case Form::kSame:
      return two(expr.text, kCompare + 1, kCompare + 1);
    case Form::kAnd:
    case Form::kOr:
      return two(expr.text, binding, binding + 1);
    case Form::kConditional: {
      std::string text = operand(expr.args[0], kOr);
      text += " if " + operand(expr.args[1], kOr);
      return text += " else " + operand(expr.args[2], kAny);
    }
    case Form::kCall:
      return call(expr);
    case Form::kDtype:
      return operand(expr.args[0], kReceiver) + ".dtype";
    default:
      return std::string(expr.text);
  }
}

std::string Printer::print() {
  for (size_t i = 0; i < program_.exprs.size(); ++i) {
    const Expr& expr = program_.exprs[i];
    texts_[i] = text(expr);
    const Binding binding = binding_of(expr);
    if (parentheses_ == Parentheses::kAll && binding < kNumber)
      texts_[i] = "(" + std::move(texts_[i]) + ")";
  }
  std::string out;
  for (const Statement& one : program_.statements)
    out += std::string(one.name) + " = " + texts_[static_cast<size_t>(one.value)] + "\n";
  if (!program_.statements.empty()) out += "return ";
  for (size_t i = 0; i < program_.results.size(); ++i)
    out += (i == 0 ? "" : ", ") + texts_[static_cast<size_t>(program_.results[i])];
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
