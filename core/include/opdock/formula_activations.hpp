// opdock/formula_activations.hpp: sigmoid, silu and both forms of gelu, of vectors of floats and of
// doubles, for the CPU code of formulas.
// SPDX-License-Identifier: Apache-2.0
//
// Where products and sums can be fused, each has a short way for numbers of usual size, and a long
// one for NaN and for numbers so far below 0 that a power of the short way would overflow.
// core/formula/interpreter.h has their errors.
#ifndef OPDOCK_FORMULA_ACTIVATIONS_HPP_
#define OPDOCK_FORMULA_ACTIVATIONS_HPP_

#include "opdock/activation_polynomials.hpp"
#include "opdock/formula_functions.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

template <class V>
HWY_INLINE V wide_gelu(DoubleTag d, V x) {
  const V half = hn::Mul(x, hn::Set(d, 0.5));
  return hn::Mul(half, wide_erfc(d, hn::Mul(x, hn::Set(d, -0.7071067811865476))));
}
// x / (1 + e^y), where y grows with -x; NaN for -infinity, as infinity / infinity is.
template <class V>
HWY_INLINE V divide_by_power(DoubleTag d, V x, V y) {
  const V sum = hn::Add(wide_exp(d, y), hn::Set(d, 1.0));
  const V infinity = hn::Set(d, HUGE_VAL);
  return hn::Div(x, hn::IfThenElse(hn::Eq(y, infinity), infinity, sum));
}
// x times the sigmoid of sqrt(8 / pi) (x + 0.044715 x^3).
template <class V>
HWY_INLINE V wide_gelu_tanh(DoubleTag d, V x) {
  const V slope =
      hn::MulAdd(hn::Mul(x, x), hn::Set(d, -0.07135481627260025), hn::Set(d, -1.5957691216057308));
  return divide_by_power(d, x, hn::Mul(x, slope));
}

// Computes floats in double.
template <class V, class F>
HWY_INLINE V in_halves(FloatTag d, V x, const F& function) {
  const DoubleTag wide;
  float lane[kMaxFloats];
  hn::StoreU(x, d, lane);
  for (size_t i = 0; i < hn::Lanes(d); i += hn::Lanes(wide))
    store_wide(function(wide, load_wide(lane + i)), lane + i);
  return hn::LoadU(d, lane);
}
// 1 / (1 + e^-x) and x times that, by z = e^-|x|, so that nothing overflows and small results keep
// their digits.
// ---- The long ways

#if HWY_NATIVE_FMA
// Returns value / (1 + z), rounded once, for 0 <= z <= 1.
template <class V>
HWY_INLINE V divide_by_more(FloatTag d, V value, V z) {
  const V one = hn::Set(d, 1.0f), sum = hn::Add(one, z), lost = hn::Sub(z, hn::Sub(sum, one));
  const V quotient = hn::Div(value, sum);
  // The remainder of the division, which includes the rounding error of the sum. It is NaN
  // for an infinite quotient, which is right already.
  const V rest = hn::NegMulAdd(quotient, lost, hn::NegMulAdd(quotient, sum, value));
  // About 1 / (1 + z): the rest is small.
  const V inverse = hn::NegMulAdd(z, hn::Set(d, 0.5f), one);
  const V better = hn::MulAdd(rest, inverse, quotient);
  // Adding the rest to -0 would give +0.
  const auto counts =
      hn::And(hn::Lt(hn::Abs(rest), hn::Set(d, 1e30f)), hn::Gt(hn::Abs(quotient), hn::Zero(d)));
  return hn::IfThenElse(counts, better, quotient);
}
template <class V>
HWY_INLINE V long_sigmoid(FloatTag d, V x) {
  const V z = exp(d, hn::Neg(hn::Abs(x)));
  return divide_by_more(d, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), z, hn::Set(d, 1.0f)), z);
}
template <class V>
HWY_INLINE V long_silu(FloatTag d, V x) {
  V factor;
  const V part = split_exp(d, limit(d, hn::Neg(hn::Abs(x)), -110.0f, 0.0f), &factor);
  // Below -110 the result rounds to 0, and the product must not have the limit's power.
  const auto counts = hn::Not(hn::Lt(x, hn::Set(d, -110.0f)));
  const V small = hn::Mul(hn::Mul(x, hn::IfThenElseZero(counts, part)), factor);
  const V value = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, x);
  return divide_by_more(d, value, hn::Mul(part, factor));
}
#else
template <class V>
HWY_INLINE V wide_sigmoid(DoubleTag d, V x) {
  return hn::Div(hn::Set(d, 1.0), hn::Add(hn::Set(d, 1.0), wide_exp(d, hn::Neg(x))));
}
template <class V>
HWY_INLINE V wide_silu(DoubleTag d, V x) {
  return divide_by_power(d, x, hn::Neg(x));
}
// sigmoid and silu are accurate enough without fused multiplication only in double.
template <class V>
HWY_INLINE V long_sigmoid(FloatTag d, V x) {
  return in_halves(d, x, [](auto wide, auto half) HWY_ATTR { return wide_sigmoid(wide, half); });
}
template <class V>
HWY_INLINE V long_silu(FloatTag d, V x) {
  return in_halves(d, x, [](auto wide, auto half) HWY_ATTR { return wide_silu(wide, half); });
}
#endif

template <class V>
HWY_INLINE V long_gelu(FloatTag d, V x) {
  return in_halves(d, x, [](auto wide, auto half) HWY_ATTR { return wide_gelu(wide, half); });
}
template <class V>
HWY_INLINE V long_gelu_tanh(FloatTag d, V x) {
  return in_halves(d, x, [](auto wide, auto half) HWY_ATTR { return wide_gelu_tanh(wide, half); });
}

// Doubles, by functions of single numbers.
template <class V, class F>
HWY_INLINE V each_double(DoubleTag d, V x, const F& function) {
  double lane[kMaxFloats / 2];
  hn::StoreU(x, d, lane);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lane[i] = function(lane[i]);
  return hn::LoadU(d, lane);
}
template <class V>
HWY_INLINE V long_sigmoid(DoubleTag d, V x) {
  return each_double(d, x, scalar::sigmoid);
}
template <class V>
HWY_INLINE V long_silu(DoubleTag d, V x) {
  return each_double(d, x, scalar::silu);
}
template <class V>
HWY_INLINE V long_gelu(DoubleTag d, V x) {
  return each_double(d, x, scalar::gelu);
}
template <class V>
HWY_INLINE V long_gelu_tanh(DoubleTag d, V x) {
  return each_double(d, x, scalar::gelu_tanh);
}

// ---- The short ways

inline constexpr bool kFuses = HWY_NATIVE_FMA;

// Where e^-x and e^(x^2/2) are finite, with some room: x above kMinPower, and above kMinNormal.
template <class T>
inline constexpr T kMinPower = static_cast<T>(sizeof(T) == 4 ? -80 : -690);
template <class T>
inline constexpr T kMinNormal = static_cast<T>(sizeof(T) == 4 ? -12 : -36);

// Returns e^y / 2 of floats, for y from -86 to 86.
template <class V>
HWY_INLINE V half_exp(FloatTag d, V y) {
  const hn::Rebind<int32_t, FloatTag> di;
  // 2^23 + 2^22 - 1: the sum's lowest bits are those of k - 1, where k is the nearest integer.
  const V shift = hn::Set(d, 12582911.0f), log2e = hn::Set(d, 1.44269502f);
  const V sum = hn::MulAdd(y, log2e, shift);
  const V rest =
      hn::MulAdd(y, hn::Set(d, 1.92596299e-08f), hn::MulSub(y, log2e, hn::Sub(sum, shift)));
  const V power = polynomial(d, rest, kExp2Polynomial);
  return hn::BitCast(d, hn::Add(hn::BitCast(di, power), hn::ShiftLeft<23>(hn::BitCast(di, sum))));
}
template <class V>
HWY_INLINE V half_exp(DoubleTag d, V y) {
  return hn::Mul(hn::Exp(d, y), hn::Set(d, 0.5));
}

// Returns x / (1 + e^y) for y at most 86, of doubles 700.
template <class D, class V>
HWY_INLINE V divide_by_one_more(D d, V x, V y) {
  using T = hn::TFromD<D>;
  const V half = half_exp(d, hn::Max(y, hn::Set(d, static_cast<T>(-86))));
  return hn::Div(x, hn::MulAdd(half, hn::Set(d, T(2)), hn::Set(d, T(1))));
}

// Returns x / (1 + e^-w), where w has the sign of x and is above kMinPower: for positive x as
// x - x / (1 + e^w), and around 0 as x / 2 + x tanh(w / 2) / 2, in which little is rounded.
template <class D, class V>
HWY_INLINE V times_sigmoid(D d, V x, V w) {
  using T = hn::TFromD<D>;
  // The quotient of an infinite x would be infinite too.
  const V finite = hn::Min(x, hn::Set(d, static_cast<T>(1e30)));
  const V rest = divide_by_one_more(d, finite, hn::Min(hn::Abs(w), hn::Set(d, T(-kMinPower<T>))));
  const V far = hn::IfThenElse(hn::Lt(w, hn::Zero(d)), rest, hn::Sub(x, rest));
  const V half = hn::Mul(x, hn::Set(d, T(0.5)));
  const V tanh = hn::Mul(w, polynomial(d, hn::Mul(w, w), TanhPolynomial<T>::near));
  const auto is_near = hn::Lt(hn::Abs(w), hn::Set(d, TanhPolynomial<T>::border));
  // The sum is 0 for -0.
  return hn::CopySign(hn::IfThenElse(is_near, hn::MulAdd(half, tanh, half), far), x);
}

// Returns x Phi(x) for x above kMinNormal.
template <class D, class V>
HWY_INLINE V gelu_of_usual(D d, V x) {
  using T = hn::TFromD<D>;
  using Table = NormalPolynomials<T>;
  // Above 12, of doubles 36, the tail is too small to matter.
  const V a = hn::Min(hn::Abs(x), hn::Set(d, -kMinNormal<T>)), one = hn::Set(d, T(1));
  const V square = hn::Mul(a, a), scale = hn::Set(d, T(-0.5));
  // The rounding error of the square would count in the power.
  const V lost = hn::MulSub(a, a, square);
  const V half = half_exp(d, hn::Mul(square, scale));
  const V power = hn::MulAdd(half, hn::Mul(lost, scale), half);
  const V r = hn::Div(one, hn::Add(a, hn::Set(d, Table::shift)));
  const V w = hn::MulAdd(r, hn::Set(d, Table::slope), hn::Set(d, Table::start));
  const V tail = hn::Mul(hn::Mul(power, r), polynomial(d, w, Table::far));
  const V far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  const V near = hn::MulAdd(x, polynomial(d, square, Table::near), hn::Set(d, T(0.5)));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(a, hn::Set(d, Table::border)), near, far));
}
// Returns the results of the short way, but those of the long way in lanes that are not above the
// limit, so that no result depends on its neighbours.
#define OPDOCK_TWO_WAYS(limited, limit, short_way, long_way) \
  if (!kFuses) return long_way;                              \
  const auto is_usual = hn::Gt(limited, hn::Set(d, limit));  \
  const V value = short_way;                                 \
  if (HWY_LIKELY(hn::AllTrue(d, is_usual))) return value;    \
  return hn::IfThenElse(is_usual, value, long_way);
struct Sigmoid {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    OPDOCK_TWO_WAYS(x, kMinPower<hn::TFromD<D>>,
                    divide_by_one_more(d, hn::Set(d, hn::TFromD<D>(1)), hn::Neg(x)),
                    long_sigmoid(d, x))
  }
};
struct Silu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    OPDOCK_TWO_WAYS(x, kMinPower<hn::TFromD<D>>, divide_by_one_more(d, x, hn::Neg(x)),
                    long_silu(d, x))
  }
};
struct Gelu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    OPDOCK_TWO_WAYS(x, kMinNormal<hn::TFromD<D>>, gelu_of_usual(d, x), long_gelu(d, x))
  }
};
// x times the sigmoid of sqrt(8 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    const V slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, T(0.07135481627260025)),
                               hn::Set(d, T(1.5957691216057308)));
    const V w = hn::Mul(x, slope);
    OPDOCK_TWO_WAYS(w, kMinPower<T>, times_sigmoid(d, x, w), long_gelu_tanh(d, x))
  }
};
#undef OPDOCK_TWO_WAYS

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_ACTIVATIONS_HPP_
