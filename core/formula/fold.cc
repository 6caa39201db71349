// SPDX-License-Identifier: Apache-2.0
#include "formula/fold.h"

#include <cmath>
#include <limits>

namespace opdock::formula {
namespace {

// Wraps an integer to the size of its type, as arithmetic in that type does.
int64_t wrap(Type type, int64_t value) {
  switch (type) {
    case Type::kBool:
      return value != 0;
    case Type::kUint8:
      return static_cast<uint8_t>(value);
    case Type::kInt8:
      return static_cast<int8_t>(value);
    case Type::kInt16:
      return static_cast<int16_t>(value);
    case Type::kInt32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

double round_real(Type type, double value) {
  return type == Type::kFloat64 ? value : static_cast<double>(static_cast<float>(value));
}

// Returns the number towards 0, of too large ones the nearest int64, and 0 for NaN: a cast of those
// is undefined in C++, and in PyTorch.
int64_t truncated(double value) {
  constexpr double kLimit = 0x1p63;
  if (std::isnan(value)) return 0;
  if (value >= kLimit) return std::numeric_limits<int64_t>::max();
  if (value < -kLimit) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

bool truth(Type type, const Value& value) {
  return is_float(type) ? value.real != 0 : value.integer != 0;
}

template <class T>
std::optional<bool> compare(Op op, T a, T b) {
  switch (op) {
    case Op::kEqual:
      return a == b;
    case Op::kNotEqual:
      return a != b;
    case Op::kLess:
      return a < b;
    case Op::kLessEqual:
      return a <= b;
    case Op::kGreater:
      return a > b;
    case Op::kGreaterEqual:
      return a >= b;
    default:
      return std::nullopt;
  }
}

std::optional<double> fold_real(Op op, double a, double b) {
  switch (op) {
    case Op::kNegative:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return 1 / std::sqrt(a);
    case Op::kReciprocal:
      return 1 / a;
    case Op::kExp:
      return std::exp(a);
    case Op::kLog:
      return std::log(a);
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kPow:
      return std::pow(a, b);
    default:
      return std::nullopt;
  }
}

// Arithmetic on unsigned numbers wraps.
std::optional<int64_t> fold_integer(Op op, int64_t a, int64_t b) {
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case Op::kNegative:
      return static_cast<int64_t>(0 - ua);
    case Op::kAdd:
      return static_cast<int64_t>(ua + ub);
    case Op::kSub:
      return static_cast<int64_t>(ua - ub);
    case Op::kMul:
      return static_cast<int64_t>(ua * ub);
    case Op::kBitwiseAnd:
      return a & b;
    case Op::kBitwiseOr:
      return a | b;
    case Op::kBitwiseXor:
      return a ^ b;
    default:
      return std::nullopt;
  }
}

}  // namespace

double round_to(Type type, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const bool is_half = type == Type::kFloat16;
  const int bits = is_half ? 11 : 8, least = is_half ? -14 : -126;
  int exponent = 0;
  std::frexp(value, &exponent);
  // The last bit of the result is 2^last; below the smallest normal number all have the same.
  const int last = std::max(exponent - 1, least) - bits + 1;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
  const double limit = is_half ? 65504 : std::ldexp(255, 120);
  if (std::fabs(rounded) > limit)
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded;
}

Value convert(Value value, Type from, Type to) {
  if (is_float(to)) {
    const double real = is_float(from) ? value.real : static_cast<double>(value.integer);
    return {round_real(to, real), 0};
  }
  if (to == Type::kBool) return {0, truth(from, value) ? 1 : 0};
  return {0, wrap(to, is_float(from) ? truncated(value.real) : value.integer)};
}

std::optional<Value> fold(Op op, Type type, Type operands, const std::array<Value, 3>& args) {
  const auto& [a, b, c] = args;
  if (op == Op::kWhere) return a.integer != 0 ? b : c;
  const auto made = [](bool is) { return Value{0, is ? 1 : 0}; };
  switch (op) {
    case Op::kLogicalNot:
      return made(a.integer == 0);
    case Op::kLogicalAnd:
      return made(a.integer != 0 && b.integer != 0);
    case Op::kLogicalOr:
      return made(a.integer != 0 || b.integer != 0);
    default:
      break;
  }
  if (operation(op).rule == Rule::kCompare) {
    const std::optional<bool> is =
        is_float(operands) ? compare(op, a.real, b.real) : compare(op, a.integer, b.integer);
    return is ? std::optional(made(*is)) : std::nullopt;
  }
  if (is_float(type)) {
    const std::optional<double> real = fold_real(op, a.real, b.real);
    return real ? std::optional(Value{round_real(type, *real), 0}) : std::nullopt;
  }
  const std::optional<int64_t> integer = fold_integer(op, a.integer, b.integer);
  return integer ? std::optional(Value{0, wrap(type, *integer)}) : std::nullopt;
}

}  // namespace opdock::formula
