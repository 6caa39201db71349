// The operators of the language, and how tightly they bind, for the parser and the printer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "formula/graph.h"

namespace opdock::formula {

// The order is Python's; a later operator binds more tightly.
enum class Binding : int {
  kAny,  // a conditional
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
  kAtom,
};

struct BinaryOperator {
  std::string_view symbol;
  Binding binding;
  Op op;
};
inline constexpr BinaryOperator kBinaryOperators[] = {
    {"==", Binding::kCompare, Op::kEqual},    {"!=", Binding::kCompare, Op::kNotEqual},
    {"<", Binding::kCompare, Op::kLess},      {"<=", Binding::kCompare, Op::kLessEqual},
    {">", Binding::kCompare, Op::kGreater},   {">=", Binding::kCompare, Op::kGreaterEqual},
    {"|", Binding::kBitOr, Op::kBitwiseOr},   {"^", Binding::kBitXor, Op::kBitwiseXor},
    {"&", Binding::kBitAnd, Op::kBitwiseAnd}, {"<<", Binding::kShift, Op::kShiftLeft},
    {">>", Binding::kShift, Op::kShiftRight}, {"+", Binding::kSum, Op::kAdd},
    {"-", Binding::kSum, Op::kSub},           {"*", Binding::kProduct, Op::kMul},
    {"/", Binding::kProduct, Op::kDiv},       {"//", Binding::kProduct, Op::kFloorDivide},
    {"%", Binding::kProduct, Op::kRemainder}, {"**", Binding::kPower, Op::kPow},
};

}  // namespace opdock::formula
