// The result of each operation of operations.def, number by number, in long double and in 128-bit
// integers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string_view>

namespace opdock::formula {

using Real = long double;
__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

inline Real exact_floor_divide(Real a, Real b) {
  if (b == 0 || std::isnan(a) || std::isnan(b) || std::isinf(a)) return b == 0 ? a / b : NAN;
  const Real rest = std::fmod(a, b);
  const Real quotient = std::isinf(b) ? 0 : std::round((a - rest) / b);
  return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
}
inline Real exact_remainder(Real a, Real b) {
  const Real rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline Real exact_sigmoid(Real a) {
  return a < 0 ? std::exp(a) / (1 + std::exp(a)) : 1 / (1 + std::exp(-a));
}
inline Real largest_of(Real a, Real b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : a > b ? a : b;
}
inline Real exact_logaddexp(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  const Real most = a > b ? a : b, least = a > b ? b : a;
  return most == least ? most + std::log(2.0L) : most + std::log1p(std::exp(least - most));
}

// By name; one argument or two, those that are not used being 0.
inline const std::map<std::string_view, std::function<Real(Real, Real, Real)>>& real_oracles() {
  static const auto& all = *new std::map<std::string_view, std::function<Real(Real, Real, Real)>>{
#define OPDOCK_REAL(name, expression)                                                             \
  {                                                                                               \
    name, []([[maybe_unused]] Real a, [[maybe_unused]] Real b, [[maybe_unused]] Real c) -> Real { \
      return expression;                                                                          \
    }                                                                                             \
  }
      OPDOCK_REAL("detach", a),
      OPDOCK_REAL("neg", -a),
      OPDOCK_REAL("abs", std::fabs(a)),
      OPDOCK_REAL("sign", a > 0   ? 1
                          : a < 0 ? -1
                                  : 0),
      OPDOCK_REAL("relu", a < 0 ? 0 : a),
      OPDOCK_REAL("floor", std::floor(a)),
      OPDOCK_REAL("ceil", std::ceil(a)),
      OPDOCK_REAL("trunc", std::trunc(a)),
      OPDOCK_REAL("round", std::nearbyint(a)),
      OPDOCK_REAL("sqrt", std::sqrt(a)),
      OPDOCK_REAL("rsqrt", 1 / std::sqrt(a)),
      OPDOCK_REAL("reciprocal", 1 / a),
      OPDOCK_REAL("exp", std::exp(a)),
      OPDOCK_REAL("exp2", std::exp2(a)),
      OPDOCK_REAL("expm1", std::expm1(a)),
      OPDOCK_REAL("log", std::log(a)),
      OPDOCK_REAL("log2", std::log2(a)),
      OPDOCK_REAL("log10", std::log10(a)),
      OPDOCK_REAL("log1p", std::log1p(a)),
      OPDOCK_REAL("sin", std::sin(a)),
      OPDOCK_REAL("cos", std::cos(a)),
      OPDOCK_REAL("tan", std::tan(a)),
      OPDOCK_REAL("asin", std::asin(a)),
      OPDOCK_REAL("acos", std::acos(a)),
      OPDOCK_REAL("atan", std::atan(a)),
      OPDOCK_REAL("sinh", std::sinh(a)),
      OPDOCK_REAL("cosh", std::cosh(a)),
      OPDOCK_REAL("tanh", std::tanh(a)),
      OPDOCK_REAL("asinh", std::asinh(a)),
      OPDOCK_REAL("acosh", std::acosh(a)),
      OPDOCK_REAL("atanh", std::atanh(a)),
      OPDOCK_REAL("erf", std::erf(a)),
      OPDOCK_REAL("erfc", std::erfc(a)),
      OPDOCK_REAL("sigmoid", exact_sigmoid(a)),
      OPDOCK_REAL("silu", a * exact_sigmoid(a)),
      OPDOCK_REAL("softplus", a > 20 ? a : largest_of(a, 0) + std::log1p(std::exp(-std::fabs(a)))),
      OPDOCK_REAL("gelu", a / 2 * std::erfc(-a * std::sqrt(0.5L))),
      OPDOCK_REAL("gelu_tanh", a * exact_sigmoid(a * (1.59576912160573071176L +
                                                      0.0713548162726002487763L * a * a))),
      OPDOCK_REAL("add", a + b),
      OPDOCK_REAL("sub", a - b),
      OPDOCK_REAL("mul", a * b),
      OPDOCK_REAL("div", a / b),
      OPDOCK_REAL("floor_divide", exact_floor_divide(a, b)),
      OPDOCK_REAL("remainder", exact_remainder(a, b)),
      OPDOCK_REAL("fmod", std::fmod(a, b)),
      OPDOCK_REAL("pow", std::pow(a, b)),
      OPDOCK_REAL("atan2", std::atan2(a, b)),
      OPDOCK_REAL("hypot", std::hypot(a, b)),
      OPDOCK_REAL("maximum", largest_of(a, b)),
      OPDOCK_REAL("minimu"
                  "m",
                  -largest_of(-a, -b)),
      OPDOCK_REAL("clamp_min", largest_of(a, b)),
      OPDOCK_REAL("clamp_max", -largest_of(-a, -b)),
      OPDOCK_REAL("copysign", std::copysign(a, b)),
      OPDOCK_REAL("logaddexp", exact_logaddexp(a, b)),
      OPDOCK_REAL("where", a != 0 ? b : c),
      OPDOCK_REAL("fma", std::fma(a, b, c)),
#undef OPDOCK_REAL
  };
  return all;
}

// Results of operations on integers, not wrapped. bits: of the type.
inline const std::map<std::string_view, std::function<Wide(Wide, Wide, Wide, int)>>&
integer_oracles() {
  using Of = std::function<Wide(Wide, Wide, Wide, int)>;
  const auto power = [](Wide a, Wide b, Wide, int) -> Wide {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t result = 1, square = static_cast<uint64_t>(a);
    for (; b > 0; b /= 2, square *= square)
      if (b % 2) result *= square;
    return static_cast<Wide>(static_cast<int64_t>(result));
  };
  static const auto& all = *new std::map<std::string_view, Of>{
#define OPDOCK_INTEGER(name, expression)                                              \
  {                                                                                   \
    name,                                                                             \
        []([[maybe_unused]] Wide a, [[maybe_unused]] Wide b, [[maybe_unused]] Wide c, \
           [[maybe_unused]] int bits) -> Wide { return expression; }                  \
  }
      OPDOCK_INTEGER("detach", a),
      OPDOCK_INTEGER("neg", -a),
      OPDOCK_INTEGER("abs", a < 0 ? -a : a),
      OPDOCK_INTEGER("sign", (a > 0) - (a < 0)),
      OPDOCK_INTEGER("relu", a < 0 ? 0 : a),
      OPDOCK_INTEGER("floor", a),
      OPDOCK_INTEGER("ceil", a),
      OPDOCK_INTEGER("trunc", a),
      OPDOCK_INTEGER("round", a),
      OPDOCK_INTEGER("bitwise_not", ~a),
      OPDOCK_INTEGER("add", a + b),
      OPDOCK_INTEGER("sub", a - b),
      OPDOCK_INTEGER("mul", a * b),
      OPDOCK_INTEGER("floor_divide", b == 0 ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0))),
      OPDOCK_INTEGER("remainder", b == 0 ? 0 : (a % b + b) % b),
      OPDOCK_INTEGER("fmod", b == 0 ? 0 : a % b),
      OPDOCK_INTEGER("maximum", a > b ? a : b),
      OPDOCK_INTEGER("minimum", a < b ? a : b),
      OPDOCK_INTEGER("clamp_min", a > b ? a : b),
      OPDOCK_INTEGER("clamp_max", a < b ? a : b),
      OPDOCK_INTEGER("bitwise_and", a & b),
      OPDOCK_INTEGER("bitwise_or", a | b),
      OPDOCK_INTEGER("bitwise_xor", a ^ b),
      OPDOCK_INTEGER("bitwise_left_shift", b < 0 || b >= bits ? 0 : a * (Wide(1) << int(b))),
      OPDOCK_INTEGER("bitwise_right_shift", a >> (b < 0 || b >= bits ? bits : int(b))),
      OPDOCK_INTEGER("where", a != 0 ? b : c),
#undef OPDOCK_INTEGER
      {"pow", power},
  };
  return all;
}

// Results that are bools, of numbers of any type.
template <class T>
bool exact_bool(std::string_view name, T a, T b) {
  const double real = static_cast<double>(a);
  if (name == "eq") return a == b;
  if (name == "ne") return a != b;
  if (name == "lt") return a < b;
  if (name == "le") return a <= b;
  if (name == "gt") return a > b;
  if (name == "ge") return a >= b;
  if (name == "logical_and") return a != 0 && b != 0;
  if (name == "logical_or") return a != 0 || b != 0;
  if (name == "logical_xor") return (a != 0) != (b != 0);
  if (name == "logical_not") return a == 0;
  if (name == "isnan") return std::isnan(real);
  if (name == "isinf") return std::isinf(real);
  if (name == "isfinite") return std::isfinite(real);
  if (name == "signbit") return std::signbit(real);
  if (name == "detach") return a != 0;
  if (name == "bitwise_not") return a == 0;
  if (name == "bitwise_and") return a != 0 && b != 0;
  if (name == "bitwise_or") return a != 0 || b != 0;
  return (a != 0) != (b != 0);  // bitwise_xor
}

}  // namespace opdock::formula
