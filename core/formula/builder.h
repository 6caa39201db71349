// Makes the expressions of a program, and checks what each of them takes: tensors, choices, types.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formula/lexer.h"
#include "formula/program.h"

namespace opdock::formula {

// Places are bytes of the source. All functions throw SyntaxError.
class Builder {
 public:
  explicit Builder(Program* program) : program_(*program) {}

  // Adds an expression, and the step that evaluates it.
  ExprId add(Expr expr);
  ExprId unary(const Token& symbol, ExprId a);
  ExprId negation(const Token& word, ExprId a);
  ExprId binary(const Token& symbol, Op op, ExprId a, ExprId b);
  ExprId comparison(const Token& symbol, Op op, ExprId a, ExprId b);
  // `and`, `or`: the step at which the second operand may be skipped was made by skip().
  size_t skip(ExprId choice, bool when);
  void end_skip(size_t step);
  ExprId logical(const Token& word, Form form, ExprId a, ExprId b);
  ExprId conditional(const Token& word, ExprId a, ExprId choice, ExprId b);
  ExprId call(const Token& name, const Function* function, std::array<ExprId, 3> args,
              bool is_method);
  ExprId dtype(const Token& name, ExprId a);

  void need_value(ExprId id) const;
  void need_choice(ExprId id, const std::string& advice) const;

  const Expr& operator[](ExprId id) const { return program_[id]; }
  [[noreturn]] void refuse(size_t place, const std::string& text) const;

 private:
  ExprId add(Form form, Kind kind, const Token& at, std::array<ExprId, 3> args,
             Op op = Op::kConstant);
  void check_chunk(const std::array<ExprId, 3>& args) const;
  bool is_value(ExprId id) const;
  bool is_choice(ExprId id) const;
  std::string describe(ExprId id) const;

  Program& program_;
};

}  // namespace opdock::formula
