// SPDX-License-Identifier: Apache-2.0
#include "formula/evaluate_element.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace opdock::formula {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Integers are computed without a sign: signed arithmetic overflows in C++ where it must wrap here.
int64_t wrapped(uint64_t value) {
  return static_cast<int64_t>(value);
}

double sigmoid(double a) {
  return 1 / (1 + std::exp(-a));
}

double logaddexp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return kNan;
  if (a == b) return a + std::log(2.0);  // also for two equal infinities
  return std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

// Returns the remainder with the sign of the divisor. A 0 keeps the sign of `a`, as in PyTorch.
double remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Returns the largest whole number up to the true quotient, which a / b, being rounded, may exceed.
// The result is PyTorch's: NaN for an infinite dividend, and -1 for an infinite divisor of the
// other sign.
double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b);
  double quotient = std::nearbyint((a - rest) / b);
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  return quotient == 0 ? std::copysign(0.0, a / b) : quotient;
}

double element(Op op, double a, double b, double c) {
  switch (op) {
    case Op::kNegative:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:  // 0 for NaN, as in PyTorch
      return a > 0 ? 1 : a < 0 ? -1 : 0;
    case Op::kRelu:
      return a < 0 ? 0 : a;
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kTrunc:
      return std::trunc(a);
    case Op::kRound:
      return std::nearbyint(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return 1 / std::sqrt(a);
    case Op::kReciprocal:
      return 1 / a;
    case Op::kExp:
      return std::exp(a);
    case Op::kExp2:
      return std::exp2(a);
    case Op::kExpm1:
      return std::expm1(a);
    case Op::kLog:
      return std::log(a);
    case Op::kLog2:
      return std::log2(a);
    case Op::kLog10:
      return std::log10(a);
    case Op::kLog1p:
      return std::log1p(a);
    case Op::kSin:
      return std::sin(a);
    case Op::kCos:
      return std::cos(a);
    case Op::kTan:
      return std::tan(a);
    case Op::kAsin:
      return std::asin(a);
    case Op::kAcos:
      return std::acos(a);
    case Op::kAtan:
      return std::atan(a);
    case Op::kSinh:
      return std::sinh(a);
    case Op::kCosh:
      return std::cosh(a);
    case Op::kTanh:
      return std::tanh(a);
    case Op::kAsinh:
      return std::asinh(a);
    case Op::kAcosh:
      return std::acosh(a);
    case Op::kAtanh:
      return std::atanh(a);
    case Op::kErf:
      return std::erf(a);
    case Op::kErfc:
      return std::erfc(a);
    case Op::kSigmoid:
      return sigmoid(a);
    case Op::kSilu:
      return a * sigmoid(a);
    case Op::kSoftplus:  // PyTorch's default threshold: beyond it, the argument
      return a > 20 ? a : std::log1p(std::exp(a));
    case Op::kGelu:  // erfc, because 1 + erf(a / √2) loses all digits of negative numbers
      return a * (0.5 * std::erfc(-a * std::sqrt(0.5)));
    case Op::kGeluTanh:  // (1 + tanh(u)) / 2 is sigmoid(2 u)
      return a * sigmoid(2 * std::sqrt(2 / std::acos(-1.0)) * (a + 0.044715 * a * a * a));
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kFloorDivide:
      return floor_divide(a, b);
    case Op::kRemainder:
      return remainder(a, b);
    case Op::kFmod:
      return std::fmod(a, b);
    case Op::kPow:
      return std::pow(a, b);
    case Op::kAtan2:
      return std::atan2(a, b);
    case Op::kHypot:
      return std::hypot(a, b);
    case Op::kMaximum:
    case Op::kClampMin:
      return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
    case Op::kMinimum:
    case Op::kClampMax:
      return std::isnan(a) || std::isnan(b) ? kNan : std::min(a, b);
    case Op::kCopysign:
      return std::copysign(a, b);
    case Op::kLogaddexp:
      return logaddexp(a, b);
    case Op::kFma:
      return std::fma(a, b, c);
    default:
      throw Error("found an operation that has no float result: " +
                  std::string(operation(op).name));
  }
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    // 1 / base^-exponent is rounded towards 0, as in PyTorch, which also gives 0 for base 0.
    if (base == 1) return 1;
    return base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (uint64_t left = static_cast<uint64_t>(exponent); left != 0; left >>= 1) {
    if ((left & 1) != 0) result *= factor;
    factor *= factor;
  }
  return wrapped(result);
}

// Division of integers: PyTorch's CPU kernels refuse the divisor 0, for which the result here is 0.
// The divisor -1 is negation, which wraps for the least integer.
int64_t divide_towards_zero(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? wrapped(0 - static_cast<uint64_t>(a)) : a / b;
}
int64_t rest_of(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

// A shift by less than 0 bits or by too many gives 0 to the left, and to the right the sign in all
// bits.
int64_t shift_left(Type type, int64_t a, int64_t count) {
  return count < 0 || count >= 8 * size_of(type) ? 0 : wrapped(static_cast<uint64_t>(a) << count);
}
int64_t shift_right(Type type, int64_t a, int64_t count) {
  return a >> (count < 0 || count >= 8 * size_of(type) ? 63 : count);
}

int64_t element(Op op, Type type, int64_t a, int64_t b) {
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case Op::kNegative:
      return wrapped(0 - ua);
    case Op::kAbs:
      return a < 0 ? wrapped(0 - ua) : a;
    case Op::kSign:
      return a > 0 ? 1 : a < 0 ? -1 : 0;
    case Op::kRelu:
      return std::max<int64_t>(a, 0);
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kRound:
      return a;
    case Op::kAdd:
      return wrapped(ua + ub);
    case Op::kSub:
      return wrapped(ua - ub);
    case Op::kMul:
      return wrapped(ua * ub);
    case Op::kFloorDivide: {
      const int64_t rest = rest_of(a, b), quotient = divide_towards_zero(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
    }
    case Op::kRemainder: {
      const int64_t rest = rest_of(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case Op::kFmod:
      return rest_of(a, b);
    case Op::kPow:
      return power(a, b);
    case Op::kMaximum:
    case Op::kClampMin:
      return std::max(a, b);
    case Op::kMinimum:
    case Op::kClampMax:
      return std::min(a, b);
    case Op::kBitwiseNot:
      return type == Type::kBool ? (a == 0 ? 1 : 0) : ~a;
    case Op::kBitwiseAnd:
      return a & b;
    case Op::kBitwiseOr:
      return a | b;
    case Op::kBitwiseXor:
      return a ^ b;
    case Op::kShiftLeft:
      return shift_left(type, a, b);
    case Op::kShiftRight:
      return shift_right(type, a, b);
    default:
      throw Error("found an operation that has no integer result: " +
                  std::string(operation(op).name));
  }
}

template <class T>
bool claim(Op op, T a, T b) {
  constexpr bool is_real = std::is_same_v<T, double>;
  switch (op) {
    case Op::kIsnan:
      return a != a;
    case Op::kIsinf:
      return is_real && std::isinf(static_cast<double>(a));
    case Op::kIsfinite:
      return !is_real || std::isfinite(static_cast<double>(a));
    case Op::kSignbit:
      return std::signbit(static_cast<double>(a));
    case Op::kLogicalNot:
      return a == 0;
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
    case Op::kLogicalAnd:
      return a != 0 && b != 0;
    case Op::kLogicalOr:
      return a != 0 || b != 0;
    case Op::kLogicalXor:
      return (a != 0) != (b != 0);
    default:
      throw Error("found an operation that has no bool result: " + std::string(operation(op).name));
  }
}

}  // namespace

Value evaluate_element(Op op, Type type, Type operands, const std::array<Value, 3>& args) {
  const auto& [a, b, c] = args;
  if (op == Op::kWhere) return a.integer != 0 ? b : c;
  if (op == Op::kDetach) return a;
  switch (operation(op).rule) {
    case Rule::kCompare:
    case Rule::kLogical:
    case Rule::kTest:
      return {0, (is_float(operands) ? claim(op, a.real, b.real) : claim(op, a.integer, b.integer))
                     ? 1
                     : 0};
    default:
      break;
  }
  if (is_float(type)) return {element(op, a.real, b.real, c.real), 0};
  return {0, wrap_element(type, element(op, type, a.integer, b.integer))};
}

Value convert_element(Value value, Type from, Type to) {
  if (is_float(to)) return {is_float(from) ? value.real : static_cast<double>(value.integer), 0};
  if (!is_float(from)) return {0, wrap_element(to, value.integer)};
  const double real = value.real;
  if (to == Type::kBool) return {0, real != 0 ? 1 : 0};
  const double limit = std::ldexp(1.0, 63);
  const int64_t integer = std::isnan(real) ? 0
                          : real >= limit  ? std::numeric_limits<int64_t>::max()
                          : real <= -limit ? std::numeric_limits<int64_t>::min()
                                           : static_cast<int64_t>(real);
  return {0, wrap_element(to, integer)};
}

int64_t wrap_element(Type type, int64_t value) {
  if (type == Type::kBool) return value != 0 ? 1 : 0;
  const int unused = 64 - 8 * size_of(type);
  const uint64_t high = static_cast<uint64_t>(value) << unused;
  return type == Type::kUint8 ? static_cast<int64_t>(high >> unused)
                              : static_cast<int64_t>(high) >> unused;
}

double round_element(Type type, double value) {
  if (type == Type::kFloat64 || !std::isfinite(value) || value == 0) return value;
  if (type == Type::kFloat32) return static_cast<float>(value);
  const bool is_half = type == Type::kFloat16;
  const int digits = is_half ? 11 : 8, min_exponent = is_half ? -14 : -126;
  // The distance of the type's numbers around `value`: subnormal ones have that of the least normal
  // one.
  const double step = std::scalbn(1.0, std::max(std::ilogb(value), min_exponent) - (digits - 1));
  const double rounded = std::nearbyint(value / step) * step;
  const double max = is_half ? 65504 : std::scalbn(255.0, 120);
  return std::fabs(rounded) <= max ? rounded
                                   : std::copysign(std::numeric_limits<double>::infinity(), value);
}

}  // namespace opdock::formula
