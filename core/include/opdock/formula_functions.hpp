// opdock/formula_functions.hpp: the functions of formulas, of vectors of doubles and floats, and of
// single numbers where vectors would be no more accurate and hardly faster.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_FORMULA_FUNCTIONS_HPP_
#define OPDOCK_FORMULA_FUNCTIONS_HPP_

#include <math.h>

#include <cmath>

#include "opdock/formula_math.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

#define OPDOCK_FUNCTION(Name, expression)     \
  struct Name {                               \
    template <class D, class V>               \
    HWY_INLINE V operator()(D d, V x) const { \
      return expression;                      \
    }                                         \
  };
OPDOCK_FUNCTION(Exp, exp(d, x))
OPDOCK_FUNCTION(Exp2, exp2(d, x))
OPDOCK_FUNCTION(Expm1, wide_expm1(d, x))
OPDOCK_FUNCTION(Log, wide_log(d, x))
OPDOCK_FUNCTION(Log2, hn::Mul(wide_log(d, x), hn::Set(d, 1.4426950408889634)))
OPDOCK_FUNCTION(Log10, hn::Mul(wide_log(d, x), hn::Set(d, 0.4342944819032518)))
OPDOCK_FUNCTION(Log1p, wide_log1p(d, x))
OPDOCK_FUNCTION(Tanh, wide_tanh(d, x))
OPDOCK_FUNCTION(Erf, wide_erf(d, x))
OPDOCK_FUNCTION(Erfc, wide_erfc(d, x))
// Highway's give numbers outside of [-1, 1], and for NaN.
OPDOCK_FUNCTION(Asin, hn::IfThenElse(hn::Le(hn::Abs(x), hn::Set(d, 1.0)), hn::Asin(d, x),
                                     hn::Set(d, double(NAN))))
OPDOCK_FUNCTION(Acos, hn::IfThenElse(hn::Le(hn::Abs(x), hn::Set(d, 1.0)), hn::Acos(d, x),
                                     hn::Set(d, double(NAN))))
OPDOCK_FUNCTION(Atan, hn::IfThenElse(hn::Eq(x, x), hn::Atan(d, x), x))
#undef OPDOCK_FUNCTION

struct Sinh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V z = wide_expm1(d, hn::Abs(x)), one = hn::Set(d, 1.0);
    const V value = hn::Mul(hn::Set(d, 0.5), hn::Add(z, hn::Div(z, hn::Add(z, one))));
    return hn::CopySign(value, x);
  }
};
struct Cosh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V z = wide_exp(d, x);
    return hn::Mul(hn::Set(d, 0.5), hn::Add(z, hn::Div(hn::Set(d, 1.0), z)));
  }
};
struct Asinh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V a = hn::Abs(x), one = hn::Set(d, 1.0), square = hn::Mul(a, a);
    // For large a this is 2a, without infinity / infinity.
    const V more = hn::IfThenElse(hn::Lt(a, hn::Set(d, 1e9)),
                                  hn::Div(square, hn::Add(one, hn::Sqrt(hn::Add(square, one)))), a);
    return hn::CopySign(wide_log1p(d, hn::Add(a, more)), x);
  }
};
struct Acosh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V one = hn::Set(d, 1.0), t = hn::Sub(x, one);
    const V value = wide_log1p(d, hn::Add(t, hn::Sqrt(hn::Mul(t, hn::Add(x, one)))));
    return hn::IfThenElse(hn::Ge(x, one), value, hn::Set(d, double(NAN)));
  }
};
struct Atanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V a = hn::Abs(x), one = hn::Set(d, 1.0);
    const V log = wide_log1p(d, hn::Div(hn::Add(a, a), hn::Sub(one, a)));
    return hn::CopySign(hn::Mul(hn::Set(d, 0.5), log), x);
  }
};
struct Softplus {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V log = wide_log1p(d, wide_exp(d, hn::Neg(hn::Abs(x))));
    const V value = hn::Add(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x), log);
    return hn::IfThenElse(hn::Gt(x, hn::Set(d, 20.0)), x, value);  // as in PyTorch
  }
};
struct Atan2 {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V y, V x) const {
    const V pi = hn::Set(d, 3.141592653589793), one = hn::Set(d, 1.0), zero = hn::Zero(d);
    const V infinity = hn::Set(d, HUGE_VAL);
    V a = hn::Abs(y), b = hn::Abs(x);
    // Two infinities count as 1 and 1; two zeros have the quotient 0.
    const auto both = hn::And(hn::Eq(a, infinity), hn::Eq(b, infinity));
    a = hn::IfThenElse(both, one, a);
    b = hn::IfThenElse(both, one, b);
    const V quotient = hn::IfThenElse(hn::Eq(a, zero), a, hn::Div(a, b));
    V angle = hn::Atan(d, quotient);
    const auto left = hn::Lt(hn::CopySign(one, x), zero);
    angle = hn::IfThenElse(left, hn::Sub(pi, angle), angle);
    const V sum = hn::Add(y, x);
    const auto is_undefined = hn::Or(is_nan(x), is_nan(y));
    return hn::IfThenElse(is_undefined, sum, hn::CopySign(angle, y));
  }
};
struct Hypot {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    const V infinity = hn::Set(d, HUGE_VAL), a = hn::Abs(x), b = hn::Abs(y);
    const auto far = hn::Or(hn::Eq(a, infinity), hn::Eq(b, infinity));
    return hn::IfThenElse(far, infinity, hn::Sqrt(hn::MulAdd(a, a, hn::Mul(b, b))));
  }
};
struct Logaddexp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    const auto is_more = hn::Gt(x, y);
    const V most = hn::IfThenElse(is_more, x, y), least = hn::IfThenElse(is_more, y, x);
    // The difference of equal infinities would be NaN.
    const V gap = hn::IfThenElse(hn::Eq(x, y), hn::Zero(d), hn::Sub(least, most));
    const V value = hn::Add(most, wide_log1p(d, wide_exp(d, gap)));
    return hn::IfThenElse(hn::Or(is_nan(x), is_nan(y)), hn::Add(x, y), value);
  }
};
struct Pow {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    const V one = hn::Set(d, 1.0), zero = hn::Zero(d), infinity = hn::Set(d, HUGE_VAL);
    const V a = hn::Abs(x), half = hn::Mul(y, hn::Set(d, 0.5));
    const auto is_whole = hn::Eq(hn::Floor(y), y);
    const auto is_odd = hn::And(is_whole, hn::Not(hn::Eq(hn::Floor(half), half)));
    V value = wide_exp(d, hn::Mul(y, wide_log(d, a)));
    // wide_exp() is limited, and not exactly 0 or infinite.
    const V power = hn::Mul(y, hn::Sub(a, one));
    const auto is_end =
        hn::Or(hn::Or(hn::Eq(a, zero), hn::Eq(a, infinity)), hn::Eq(hn::Abs(y), infinity));
    value = hn::IfThenElse(is_end, hn::IfThenElse(hn::Gt(power, zero), infinity, zero), value);
    value = hn::IfThenElse(hn::And(hn::Lt(x, zero), is_odd), hn::Neg(value), value);
    const auto is_minus = hn::And(hn::Eq(x, zero), is_odd);
    value = hn::IfThenElse(is_minus, hn::CopySign(value, x), value);
    const auto is_undefined =
        hn::And(hn::And(hn::Lt(x, zero), hn::Lt(a, infinity)), hn::Not(is_whole));
    value = hn::IfThenElse(is_undefined, hn::Set(d, double(NAN)), value);
    value = hn::IfThenElse(hn::Or(is_nan(x), is_nan(y)), hn::Add(x, y), value);
    const auto ends = hn::And(hn::Eq(a, one), hn::Eq(hn::Abs(y), infinity));
    const auto is_one = hn::Or(hn::Or(hn::Eq(x, one), hn::Eq(y, zero)), ends);
    return hn::IfThenElse(is_one, one, value);
  }
};

// Functions that are accurate between two limits only.
#define OPDOCK_GUARDED(Name, low, high, expression)   \
  struct Name {                                       \
    static constexpr double kLow = low, kHigh = high; \
    template <class D, class V>                       \
    HWY_INLINE V operator()(D d, V x) const {         \
      return expression;                              \
    }                                                 \
  };
// Highway's sine and cosine are accurate to +-39000, its exp to 706; its log handles neither 0 nor
// infinity. Its sine of -0 is 0.
OPDOCK_GUARDED(NearSin, -30000, 30000, hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Sin(d, x)))
OPDOCK_GUARDED(NearCos, -30000, 30000, hn::Cos(d, x))
OPDOCK_GUARDED(NearTan, -30000, 30000,
               hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Div(hn::Sin(d, x), hn::Cos(d, x))))
OPDOCK_GUARDED(NearExp, -700, 700, hn::Exp(d, x))
OPDOCK_GUARDED(NearLog, 1e-300, 1e300, hn::Log(d, x))
#undef OPDOCK_GUARDED

// Functions of single numbers.
namespace scalar {

inline double sigmoid(double x) {
  const double z = std::exp(-std::fabs(x));
  return (x < 0 ? z : 1) / (1 + z);
}
inline double silu(double x) {
  return x * sigmoid(x);
}
// softplus is x itself above 20, which is PyTorch's threshold.
inline double softplus(double x) {
  return x > 20 ? x : (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
}
inline double logaddexp(double a, double b) {
  if (a == b) return a + 0.6931471805599453;
  const double most = a > b ? a : b, least = a > b ? b : a;
  return std::isnan(a) || std::isnan(b) ? a + b : most + std::log1p(std::exp(least - most));
}
// erfc's argument is rounded, which its tail would magnify: what was lost is added to first order.
inline double gelu(double x) {
  const double z = x * -0.7071067811865476;
  const double lost = std::fma(x, -0.7071067811865476, -z) + x * 4.833646656726457e-17;
  const double tail = std::erfc(z);
  // Where the tail is 0 its product with infinity is NaN, as PyTorch's.
  const double slope = tail == 0 ? 0 : 1.1283791670955126 * std::exp(-z * z);
  return 0.5 * x * (tail - (slope == 0 ? 0 : lost * slope));
}
// x times the sigmoid of sqrt(8 / pi) (x + 0.044715 x^3).
inline double gelu_tanh(double x) {
  const double z = std::exp(-std::fabs(x) * (1.5957691216057308 + 0.07135481627260025 * (x * x)));
  return (x < 0 ? x * z : x) / (1 + z);
}

// Python's rules: the quotient is rounded down, and the remainder has the sign of b.
template <class T>
inline T floor_divide(T a, T b) {
  if (b == 0) return a / b;
  T rest = std::fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), a / b);
  const T whole = std::floor(quotient);
  return quotient - whole > T(0.5) ? whole + 1 : whole;
}
template <class T>
inline T remainder(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

// Numbers that no integer holds become the smallest one, as x86 converts them.
template <class T>
inline int64_t to_integer(T value) {
  const bool fits = value >= T(-0x1p63) && value < T(0x1p63);
  return fits ? static_cast<int64_t>(value) : INT64_MIN;
}

// Arithmetic of unsigned numbers wraps.
inline int64_t negative(int64_t a) {
  return static_cast<int64_t>(uint64_t(0) - static_cast<uint64_t>(a));
}
// Division by 0 gives 0, and the only quotient that does not fit wraps.
inline int64_t quotient(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? negative(a) : a / b;
}
inline int64_t rest(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}
inline int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t r = rest(a, b);
  return quotient(a, b) - (r != 0 && (r < 0) != (b < 0));
}
inline int64_t remainder(int64_t a, int64_t b) {
  const int64_t r = rest(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
// PyTorch's rule: a negative power of an integer is 0, except that of 1 and -1.
inline int64_t power(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  uint64_t product = 1, square = static_cast<uint64_t>(a);
  for (; b > 0; b /= 2, square *= square)
    if (b % 2 != 0) product *= square;
  return static_cast<int64_t>(product);
}
// PyTorch's rule: a shift by more bits than there are, or by fewer than 0, leaves 0 or the sign.
// The program wraps the result to its type.
inline int64_t shift_left(int64_t a, int64_t b) {
  return b < 0 || b > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
inline int64_t shift_right(int64_t a, int64_t b) {
  return a >> (b < 0 || b > 63 ? 63 : b);
}

}  // namespace scalar
}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_FUNCTIONS_HPP_
