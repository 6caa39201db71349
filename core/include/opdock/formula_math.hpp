// opdock/formula_math.hpp: arithmetic and functions of vectors, for the CPU code of formulas: the
// interpreter's kernels and compiled formulas compute the same.
// SPDX-License-Identifier: Apache-2.0
//
// Floats are accurate to 2 units in the last place. NaN gives NaN.
#ifndef OPDOCK_FORMULA_MATH_HPP_
#define OPDOCK_FORMULA_MATH_HPP_

#include "opdock/activation_polynomials.hpp"
#include "opdock/simd.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = hwy::HWY_NAMESPACE;

// Vectors have at most this many floats, or half as many doubles.
inline constexpr size_t kMaxFloats = 16;
using FloatTag = hn::CappedTag<float, kMaxFloats>;
using DoubleTag = hn::CappedTag<double, kMaxFloats / 2>;
template <class T>
struct TagOf;
template <>
struct TagOf<float> {
  using type = FloatTag;
};
template <>
struct TagOf<double> {
  using type = DoubleTag;
};

// Returns which lanes are NaN. Ne() does not: on x86 Highway 1.0.3 compares with _CMP_NEQ_OQ.
template <class V>
HWY_INLINE auto is_nan(V value) {
  return hn::Not(hn::Eq(value, value));
}

// Floats that are computed in double, which makes a function accurate to half a unit in the last
// place without much thought.
using NarrowTag = hn::Rebind<float, DoubleTag>;
HWY_INLINE hn::VFromD<DoubleTag> load_wide(const float* from) {
  return hn::PromoteTo(DoubleTag(), hn::LoadU(NarrowTag(), from));
}
HWY_INLINE void store_wide(hn::VFromD<DoubleTag> value, float* to) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  // DemoteTo() turns numbers that float does not hold into its largest one.
  double lane[kMaxFloats];
  hn::StoreU(value, DoubleTag(), lane);
  for (size_t i = 0; i < hn::Lanes(DoubleTag()); ++i) to[i] = static_cast<float>(lane[i]);
#else
  hn::StoreU(hn::DemoteTo(NarrowTag(), value), NarrowTag(), to);
#endif
}

// Arithmetic, as functors of a tag and vectors.
#define OPDOCK_UNARY(Name, expression)        \
  struct Name {                               \
    template <class D, class V>               \
    HWY_INLINE V operator()(D d, V a) const { \
      (void)d;                                \
      return expression;                      \
    }                                         \
  };
#define OPDOCK_BINARY(Name, expression)            \
  struct Name {                                    \
    template <class D, class V>                    \
    HWY_INLINE V operator()(D d, V a, V b) const { \
      (void)d;                                     \
      return expression;                           \
    }                                              \
  };
OPDOCK_UNARY(Negative, hn::Neg(a))
OPDOCK_UNARY(Abs, hn::Abs(a))
// 0 for NaN, as in PyTorch.
OPDOCK_UNARY(Sign, hn::IfThenElseZero(hn::Gt(hn::Abs(a), hn::Zero(d)),
                                      hn::CopySign(hn::Set(d, hn::TFromD<D>(1)), a)))
OPDOCK_UNARY(Relu, hn::IfThenElse(hn::Lt(a, hn::Zero(d)), hn::Zero(d), a))
OPDOCK_UNARY(Floor, hn::Floor(a))
OPDOCK_UNARY(Ceil, hn::Ceil(a))
OPDOCK_UNARY(Trunc, hn::Trunc(a))
OPDOCK_UNARY(Round, hn::Round(a))
OPDOCK_UNARY(Sqrt, hn::Sqrt(a))
OPDOCK_UNARY(Rsqrt, hn::Div(hn::Set(d, hn::TFromD<D>(1)), hn::Sqrt(a)))
OPDOCK_UNARY(Reciprocal, hn::Div(hn::Set(d, hn::TFromD<D>(1)), a))
OPDOCK_BINARY(Add, hn::Add(a, b))
OPDOCK_BINARY(Sub, hn::Sub(a, b))
OPDOCK_BINARY(Mul, hn::Mul(a, b))
OPDOCK_BINARY(Div, hn::Div(a, b))
OPDOCK_BINARY(Maximum, hn::IfThenElse(hn::Or(hn::Gt(a, b), is_nan(a)), a, b))
OPDOCK_BINARY(Minimum, hn::IfThenElse(hn::Or(hn::Lt(a, b), is_nan(a)), a, b))
OPDOCK_BINARY(Copysign, hn::CopySign(a, b))
#undef OPDOCK_UNARY
#undef OPDOCK_BINARY
struct Fma {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b, V c) const {
    return hn::MulAdd(a, b, c);
  }
};

template <class D, class V, class T, size_t N>
HWY_INLINE V polynomial(D d, V x, const T (&coefficients)[N]) {
  V value = hn::Set(d, coefficients[N - 1]);
  for (size_t i = N - 1; i > 0; --i) value = hn::MulAdd(value, x, hn::Set(d, coefficients[i - 1]));
  return value;
}

// Returns x, but at least low and at most high; NaN for NaN.
template <class D, class V>
HWY_INLINE V limit(D d, V x, hn::TFromD<D> low, hn::TFromD<D> high) {
  const V least = hn::Set(d, low), most = hn::Set(d, high);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(least, hn::Min(most, x));  // x86 returns the second operand if one is NaN
#else
  x = hn::IfThenElse(hn::Lt(x, least), least, x);
  return hn::IfThenElse(hn::Gt(x, most), most, x);
#endif
}

// 2^k of floats as two factors, because 2^k itself may be no normal number. k, from -158 to 129, is
// in the low bits of `shifted`, to which 1.5 * 2^23 was added.
template <class V>
HWY_INLINE void split_power(FloatTag d, V shifted, V* first, V* second) {
  const hn::Rebind<int32_t, FloatTag> di;
  const auto k = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x4b400000));
  const auto half = hn::ShiftRight<1>(k), bias = hn::Set(di, 127);
  *first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  *second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(k, half), bias)));
}

// e^r for |r| <= log(2)/2, with a relative error of 4e-9.
inline constexpr float kExp[] = {1.0f,           1.0f,          0x1.fffffcp-2f, 0x1.555492p-3f,
                                 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23dp-10f};

// Returns e^x of floats divided by *factor, so that the product is rounded once. x from -110 to 89.
template <class V>
HWY_INLINE V split_exp(FloatTag d, V x, V* factor) {
  const V shift = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the sum is rounded to an integer
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift), k = hn::Sub(shifted, shift);
  // log(2) in two parts, the first of which has 15 bits, so that its product is exact.
  const V high = hn::NegMulAdd(k, hn::Set(d, 0x1.62e4p-1f), x);
  const V r = hn::NegMulAdd(k, hn::Set(d, 0x1.7f7d1cp-20f), high);
  V first;
  split_power(d, shifted, &first, factor);
  return hn::Mul(polynomial(d, r, kExp), first);
}
// e^x of floats, within 1 unit in the last place.
template <class V>
HWY_INLINE V exp(FloatTag d, V x) {
  V factor;  // e^-104 rounds to 0, e^89 to infinity
  const V part = split_exp(d, limit(d, x, -104.0f, 89.0f), &factor);
  return hn::Mul(part, factor);
}
template <class V>
HWY_INLINE V exp2(FloatTag d, V x) {
  x = limit(d, x, -150.0f, 129.0f);
  const V shift = hn::Set(d, 12582912.0f), shifted = hn::Add(x, shift);
  V first, second;
  split_power(d, shifted, &first, &second);
  const V power = polynomial(d, hn::Sub(x, hn::Sub(shifted, shift)), kExp2Polynomial);
  return hn::Mul(hn::Mul(power, first), second);
}

// The functions below compute floats in double. The errors are far below half a unit in float's
// last place.

// 2^r for |r| <= 1/2 with an error of 6e-11; erf(z) / z in z^2, z <= 1, with 4e-11; and
// erfc(z) e^(z^2) / r in r = 1 / (1 + 0.3 z), z <= 10.3, with 5e-10.
inline constexpr double kWideExp2[] = {
    0.9999999999595618,   0.6931471805568324,    0.24022651213498092,    0.055504109063258665,
    0.009618025613318034, 0.0013333478473685416, 0.00015469729214118296, 1.5303700711365693e-05};
inline constexpr double kErf[] = {
    1.1283791670615435,   -0.3761263846802871,    0.11283782495236845,    -0.026865430727670243,
    0.005221031807858023, -0.0008484080405535107, 0.00011265959025606609, -9.667044571486996e-06};
inline constexpr double kErfc[] = {0.1692792956966162,   0.16872901268626891, 0.1671563897204793,
                                   0.11266787371750753,  0.2585878365811899,  -0.2635730931265918,
                                   0.7439404762577699,   -0.8111716384244072, 0.7257746943720486,
                                   -0.32600203872851596, 0.05461119074595852};

// e^x, of x limited to +-200: beyond that, floats are infinite or 0.
template <class V>
HWY_INLINE V wide_exp(DoubleTag d, V x) {
  x = limit(d, x, -200.0, 200.0);
  const V log2e = hn::Set(d, 1.4426950408889634), shift = hn::Set(d, 6755399441055744.0);
  const V shifted = hn::MulAdd(x, log2e, shift), k = hn::Sub(shifted, shift);
  const V power = polynomial(d, hn::MulSub(x, log2e, k), kWideExp2);
  const hn::Rebind<int64_t, DoubleTag> di;
  return hn::BitCast(d,
                     hn::Add(hn::BitCast(di, power), hn::ShiftLeft<52>(hn::BitCast(di, shifted))));
}

template <class V>
HWY_INLINE V wide_log(DoubleTag d, V x) {
  const V zero = hn::Zero(d), infinity = hn::Set(d, HUGE_VAL);
  const V log = hn::IfThenElse(hn::Lt(x, infinity), hn::Log(d, x), x);  // NaN and infinity stay
  const V least = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), hn::Set(d, double(NAN)));
  return hn::IfThenElse(hn::Le(x, zero), least, log);
}
// log(1 + x).
template <class V>
HWY_INLINE V wide_log1p(DoubleTag d, V x) {
  const V one = hn::Set(d, 1.0), sum = hn::Add(one, x);
  // The sum was rounded; what was lost is added to the logarithm.
  const V lost = hn::Div(hn::Sub(x, hn::Sub(sum, one)), sum);
  const V log = wide_log(d, sum);
  const auto counts = hn::And(hn::Gt(x, hn::Set(d, -1.0)), hn::Lt(x, hn::Set(d, 1e9)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Add(log, hn::IfThenElseZero(counts, lost)));
}
template <class V>
HWY_INLINE V wide_expm1(DoubleTag d, V x) {
  // The error of wide_exp() counts where 1 is nearly all of it.
  static constexpr double kSmall[] = {1.0,       1.0 / 2,   1.0 / 6,   1.0 / 24,
                                      1.0 / 120, 1.0 / 720, 1.0 / 5040};
  const V near = hn::Mul(x, polynomial(d, x, kSmall));
  const V far = hn::Sub(wide_exp(d, x), hn::Set(d, 1.0));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.2)), near, far);
}
template <class V>
HWY_INLINE V wide_tanh(DoubleTag d, V x) {
  const V a = hn::Abs(x), z = wide_expm1(d, hn::Add(a, a));
  return hn::CopySign(hn::Div(z, hn::Add(z, hn::Set(d, 2.0))), x);
}

// erfc(z) for z >= 0.
template <class V>
HWY_INLINE V wide_erfc_tail(DoubleTag d, V z) {
  const V one = hn::Set(d, 1.0);
  const V r = hn::Div(one, hn::MulAdd(z, hn::Set(d, 0.3), one));
  return hn::Mul(hn::Mul(wide_exp(d, hn::Neg(hn::Mul(z, z))), r), polynomial(d, r, kErfc));
}
template <class V>
HWY_INLINE V wide_erf(DoubleTag d, V x) {
  const V a = hn::Abs(x), one = hn::Set(d, 1.0);
  const V near = hn::Mul(x, polynomial(d, hn::Mul(x, x), kErf));
  const V far = hn::CopySign(hn::Sub(one, wide_erfc_tail(d, a)), x);
  return hn::IfThenElse(hn::Lt(a, one), near, far);
}
template <class V>
HWY_INLINE V wide_erfc(DoubleTag d, V x) {
  const V tail = wide_erfc_tail(d, hn::Abs(x));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 2.0), tail), tail);
}
}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_MATH_HPP_
