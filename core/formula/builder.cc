// SPDX-License-Identifier: Apache-2.0
#include "formula/builder.h"

#include "formula/syntax_error.h"

namespace opdock::formula {

void Builder::refuse(size_t place, const std::string& text) const {
  fail(program_.source, place, text);
}

ExprId Builder::add(Expr expr) {
  const ExprId id = static_cast<ExprId>(program_.exprs.size());
  program_.exprs.push_back(expr);
  program_.steps.push_back({id});
  return id;
}

ExprId Builder::add(Form form, Kind kind, const Token& at, std::array<ExprId, 3> args, Op op) {
  Expr expr;
  expr.form = form;
  expr.kind = kind;
  expr.place = at.place;
  expr.text = at.text;
  expr.args = args;
  expr.op = op;
  return add(expr);
}

bool Builder::is_value(ExprId id) const {
  const Kind kind = program_[id].kind;
  return kind == Kind::kValue || kind == Kind::kOptional || kind == Kind::kFlag;
}

bool Builder::is_choice(ExprId id) const {
  const Expr& expr = program_[id];
  return expr.kind == Kind::kChoice || expr.kind == Kind::kFlag || expr.is_optional;
}

std::string Builder::describe(ExprId id) const {
  switch (program_[id].kind) {
    case Kind::kValue:
    case Kind::kOptional:
      return "a tensor or a number";
    case Kind::kChoice:
      return "a choice";
    case Kind::kFlag:
      return program_[id].form == Form::kTrue    ? "True"
             : program_[id].form == Form::kFalse ? "False"
                                                 : "a choice";
    case Kind::kString:
      return "a string";
    case Kind::kType:
      return "a type";
    case Kind::kParts:
      return "the parts of a tensor";
    case Kind::kNothing:
      break;
  }
  return "None";
}

void Builder::need_value(ExprId id) const {
  if (is_value(id)) return;
  std::string text = "found " + describe(id) + ", wanted a tensor or a number";
  switch (program_[id].kind) {
    case Kind::kChoice:
      text += "; a choice selects one of two values: a if choice else b";
      break;
    case Kind::kString:
      text += "; a string can be compared with a parameter: mode == \"tanh\"";
      break;
    case Kind::kType:
      text += "; a type can be compared, x.dtype == float16, and given to x.to(float16)";
      break;
    case Kind::kParts:
      text += "; give the parts names first: first, second = chunk(x, 2)";
      break;
    default:
      break;
  }
  refuse(program_[id].place, text);
}

void Builder::need_choice(ExprId id, const std::string& advice) const {
  if (is_choice(id)) return;
  refuse(program_[id].place, "found " + describe(id) +
                                 ", wanted a choice, which is known when a kernel is chosen; " +
                                 advice);
}

ExprId Builder::unary(const Token& symbol, ExprId a) {
  need_value(a);
  const Op op = symbol.is("-")   ? Op::kNegative
                : symbol.is("~") ? Op::kBitwiseNot
                                 : Op::kConstant;  // "+" changes nothing
  return add(Form::kUnary, Kind::kValue, symbol, {a, kNoExpr, kNoExpr}, op);
}

ExprId Builder::negation(const Token& word, ExprId a) {
  need_choice(a, "for a tensor write ~ or logical_not(a)");
  return add(Form::kNot, Kind::kChoice, word, {a, kNoExpr, kNoExpr});
}

ExprId Builder::binary(const Token& symbol, Op op, ExprId a, ExprId b) {
  need_value(a);
  need_value(b);
  return add(Form::kBinary, Kind::kValue, symbol, {a, b, kNoExpr}, op);
}

ExprId Builder::comparison(const Token& symbol, Op op, ExprId a, ExprId b) {
  const Expr &left = program_[a], &right = program_[b];
  const auto both = [&](Kind kind) { return left.kind == kind && right.kind == kind; };
  const bool has_none = left.kind == Kind::kNothing || right.kind == Kind::kNothing;
  const bool has_choice = left.kind == Kind::kChoice || right.kind == Kind::kChoice;
  if (has_none && !left.is_optional && !right.is_optional)
    refuse(symbol.place, "found a comparison of None and " +
                             describe(left.kind == Kind::kNothing ? b : a) +
                             ", wanted an optional parameter by itself");
  if (has_choice && !has_none) {
    for (const ExprId id : {a, b})
      if (program_[id].kind != Kind::kChoice && program_[id].kind != Kind::kFlag)
        refuse(program_[id].place,
               "found " + describe(id) + ", wanted a choice to compare with one");
  }
  if (!has_none && !has_choice && !both(Kind::kString) && !both(Kind::kType) &&
      !both(Kind::kFlag)) {
    // A string is compared with a string alone, and a type with a type: a tensor is an error.
    for (const Kind kind : {Kind::kString, Kind::kType})
      if ((left.kind == kind) != (right.kind == kind))
        refuse(symbol.place, "found a comparison of " + describe(a) + " and " + describe(b) +
                                 (kind == Kind::kType ? ", wanted two types: x.dtype == float16"
                                                      : ", wanted two strings: mode == \"tanh\""));
    return binary(symbol, op, a, b);
  }
  if (op != Op::kEqual && op != Op::kNotEqual)
    refuse(symbol.place, "found " + quoted(symbol.text) + " between " + describe(a) + " and " +
                             describe(b) + ", wanted == or !=");
  return add(Form::kSame, Kind::kChoice, symbol, {a, b, kNoExpr}, op);
}

size_t Builder::skip(ExprId choice, bool when) {
  program_.steps.push_back({choice, 1, when});
  return program_.steps.size() - 1;
}

void Builder::end_skip(size_t step) {
  program_.steps[step].skip = program_.steps.size() - step - 1;
}

ExprId Builder::logical(const Token& word, Form form, ExprId a, ExprId b) {
  const std::string advice = form == Form::kAnd ? "between tensors write & or logical_and(a, b)"
                                                : "between tensors write | or logical_or(a, b)";
  need_choice(a, advice);
  need_choice(b, advice);
  return add(form, Kind::kChoice, word, {a, b, kNoExpr});
}

ExprId Builder::conditional(const Token& word, ExprId a, ExprId choice, ExprId b) {
  const auto both_choices = [&] {
    for (const ExprId id : {a, b})
      if (program_[id].kind != Kind::kChoice && program_[id].kind != Kind::kFlag) return false;
    return true;
  };
  for (const ExprId id : {a, b})
    if (program_[id].kind == Kind::kParts) need_value(id);
  Kind kind = program_[a].kind;
  if (kind == program_[b].kind) {
    if (kind == Kind::kOptional) kind = Kind::kValue;
  } else if (is_value(a) && is_value(b)) {
    kind = Kind::kValue;
  } else if (both_choices()) {
    kind = Kind::kChoice;
  } else {
    refuse(word.place, "found " + describe(a) + " before \"if\" and " + describe(b) +
                           " after \"else\", wanted two of the same kind");
  }
  return add(Form::kConditional, kind, word, {a, choice, b});
}

ExprId Builder::call(const Token& name, const Function* function, std::array<ExprId, 3> args,
                     bool is_method) {
  Builtin builtin = function->builtin;
  if (builtin == Builtin::kClamp) {
    const auto is_given = [&](ExprId id) {
      return id != kNoExpr && program_[id].kind != Kind::kNothing;
    };
    if (!is_given(args[1]) && !is_given(args[2]))
      refuse(name.place, "found clamp without limits, wanted min=…, max=… or both");
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const ExprId id = args[i];
    if (id == kNoExpr) continue;
    if (builtin == Builtin::kClamp && i > 0 && program_[id].kind == Kind::kNothing) continue;
    if (builtin == Builtin::kGelu && i == 1) {
      if (program_[id].kind != Kind::kString)
        refuse(program_[id].place,
               "found " + describe(id) + ", wanted approximate=\"none\" or \"tanh\"");
      if (program_[id].form == Form::kString && program_[id].text != "none" &&
          program_[id].text != "tanh")
        refuse(program_[id].place,
               "found approximate=" + quoted(program_[id].text) + ", wanted \"none\" or \"tanh\"");
      continue;
    }
    if (builtin == Builtin::kTo && i == 1) {
      if (program_[id].kind != Kind::kType)
        refuse(program_[id].place,
               "found " + describe(id) + ", wanted a type: x.to(float16) or x.to(y.dtype)");
      continue;
    }
    need_value(id);
  }
  if (builtin == Builtin::kChunk) check_chunk(args);
  const ExprId id = add(Form::kCall, Kind::kValue, name, args);
  program_.exprs.back().function = function;
  program_.exprs.back().is_method = is_method;
  return id;
}

void Builder::check_chunk(const std::array<ExprId, 3>& args) const {
  const Expr& parts = program_[args[1]];
  if (parts.form != Form::kInteger || parts.integer < 2 || parts.integer > kMaxParts)
    refuse(parts.place, "found " + quoted(parts.text) + " parts, wanted a number from 2 to " +
                            std::to_string(kMaxParts));
  if (args[2] == kNoExpr) return;
  const Expr& dim = program_[args[2]];
  const bool is_last = dim.form == Form::kUnary && dim.op == Op::kNegative &&
                       program_[dim.args[0]].form == Form::kInteger &&
                       program_[dim.args[0]].integer == 1;
  if (!is_last)
    refuse(dim.place, "found another dimension, wanted -1: formulas take parts of the last one");
}

ExprId Builder::dtype(const Token& name, ExprId a) {
  need_value(a);
  return add(Form::kDtype, Kind::kType, name, {a, kNoExpr, kNoExpr});
}

}  // namespace opdock::formula
