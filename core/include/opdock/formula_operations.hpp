// opdock/formula_operations.hpp: the operations of formulas (core/formula/operations.def) on the
// values of opdock/formula_values.hpp, by their names.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_FORMULA_OPERATIONS_HPP_
#define OPDOCK_FORMULA_OPERATIONS_HPP_

#include "opdock/formula_values.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

// ---- Arithmetic of floats

#define OPDOCK_UNARY(name, Functor)                     \
  HWY_INLINE Floats name(Floats a) {                    \
    return Functor()(FloatTag(), a);                    \
  }                                                     \
  HWY_INLINE Doubles name(Doubles a) {                  \
    const DoubleTag d;                                  \
    return {Functor()(d, a.low), Functor()(d, a.high)}; \
  }
#define OPDOCK_BINARY(name, Functor)                                   \
  HWY_INLINE Floats name(Floats a, Floats b) {                         \
    return Functor()(FloatTag(), a, b);                                \
  }                                                                    \
  HWY_INLINE Doubles name(Doubles a, Doubles b) {                      \
    const DoubleTag d;                                                 \
    return {Functor()(d, a.low, b.low), Functor()(d, a.high, b.high)}; \
  }
OPDOCK_UNARY(neg, Negative)
OPDOCK_UNARY(abs, Abs)
OPDOCK_UNARY(sign, Sign)
OPDOCK_UNARY(relu, Relu)
OPDOCK_UNARY(floor, Floor)
OPDOCK_UNARY(ceil, Ceil)
OPDOCK_UNARY(trunc, Trunc)
OPDOCK_UNARY(round, Round)
OPDOCK_UNARY(sqrt, Sqrt)
OPDOCK_UNARY(rsqrt, Rsqrt)
OPDOCK_UNARY(reciprocal, Reciprocal)
OPDOCK_BINARY(add, Add)
OPDOCK_BINARY(sub, Sub)
OPDOCK_BINARY(mul, Mul)
OPDOCK_BINARY(div, Div)
OPDOCK_BINARY(maximum, Maximum)
OPDOCK_BINARY(minimum, Minimum)
OPDOCK_BINARY(clamp_min, Maximum)
OPDOCK_BINARY(clamp_max, Minimum)
OPDOCK_BINARY(copysign, Copysign)
#undef OPDOCK_UNARY
#undef OPDOCK_BINARY

#if HWY_NATIVE_FMA
HWY_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return hn::MulAdd(a, b, c);
}
HWY_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) {
  return {hn::MulAdd(a.low, b.low, c.low), hn::MulAdd(a.high, b.high, c.high)};
}
#else
template <class Value>
HWY_INLINE Value fma(Value a, Value b, Value c) {
  using T = typename ElementOf<Value>::type;
  T x[kLanes], y[kLanes], z[kLanes];
  write(a, x);
  write(b, y);
  write(c, z);
  for (int64_t k = 0; k < kLanes; ++k) x[k] = std::fma(x[k], y[k], z[k]);
  return read(x);
}
#endif

// ---- Functions

HWY_INLINE Floats exp(Floats a) {
  return exp(FloatTag(), a);
}
HWY_INLINE Floats exp2(Floats a) {
  return exp2(FloatTag(), a);
}
#define OPDOCK_ACTIVATION(name, Functor)                   \
  HWY_INLINE Floats name(Floats a) {                       \
    return Functor()(FloatTag(), a);                       \
  }                                                        \
  HWY_INLINE Doubles name(Doubles a) {                     \
    const DoubleTag d;                                     \
    const DoubleV low = Functor()(d, a.low);               \
    return {low, kHasHalves ? Functor()(d, a.high) : low}; \
  }
OPDOCK_ACTIVATION(sigmoid, Sigmoid)
OPDOCK_ACTIVATION(silu, Silu)
OPDOCK_ACTIVATION(gelu, Gelu)
OPDOCK_ACTIVATION(gelu_tanh, GeluTanh)
#undef OPDOCK_ACTIVATION

// Floats are computed in double, and doubles by the functions of the C library.
#define OPDOCK_WIDE(name, Functor, expression)                        \
  HWY_INLINE Floats name(Floats a) {                                  \
    const DoubleTag d;                                                \
    const Doubles wide = widen(a);                                    \
    return narrow({Functor()(d, wide.low), Functor()(d, wide.high)}); \
  }                                                                   \
  OPDOCK_SCALAR(name, expression)
#define OPDOCK_SCALAR(name, expression)                                             \
  HWY_INLINE Doubles name(Doubles a) {                                              \
    return lane_by_lane<Doubles>(a, [](double x) -> double { return expression; }); \
  }
OPDOCK_SCALAR(exp2, std::exp2(x))
OPDOCK_SCALAR(sin, std::sin(x))
OPDOCK_SCALAR(cos, std::cos(x))
OPDOCK_SCALAR(tan, std::tan(x))
OPDOCK_WIDE(expm1, Expm1, std::expm1(x))
OPDOCK_WIDE(log2, Log2, std::log2(x))
OPDOCK_WIDE(log10, Log10, std::log10(x))
OPDOCK_WIDE(log1p, Log1p, std::log1p(x))
OPDOCK_WIDE(tanh, Tanh, std::tanh(x))
OPDOCK_WIDE(erf, Erf, std::erf(x))
OPDOCK_WIDE(erfc, Erfc, std::erfc(x))
OPDOCK_WIDE(asin, Asin, std::asin(x))
OPDOCK_WIDE(acos, Acos, std::acos(x))
OPDOCK_WIDE(atan, Atan, std::atan(x))
OPDOCK_WIDE(sinh, Sinh, std::sinh(x))
OPDOCK_WIDE(cosh, Cosh, std::cosh(x))
OPDOCK_WIDE(asinh, Asinh, std::asinh(x))
OPDOCK_WIDE(acosh, Acosh, std::acosh(x))
OPDOCK_WIDE(atanh, Atanh, std::atanh(x))
OPDOCK_WIDE(softplus, Softplus, scalar::softplus(x))
#undef OPDOCK_WIDE
#undef OPDOCK_SCALAR
#define OPDOCK_WIDE(name, Functor, expression)                                                   \
  HWY_INLINE Floats name(Floats a, Floats b) {                                                   \
    const DoubleTag d;                                                                           \
    const Doubles x = widen(a), y = widen(b);                                                    \
    return narrow({Functor()(d, x.low, y.low), Functor()(d, x.high, y.high)});                   \
  }                                                                                              \
  HWY_INLINE Doubles name(Doubles a, Doubles b) {                                                \
    return lane_by_lane<Doubles>(a, b, [](double x, double y) -> double { return expression; }); \
  }
OPDOCK_WIDE(pow, Pow, std::pow(x, y))
OPDOCK_WIDE(atan2, Atan2, std::atan2(x, y))
OPDOCK_WIDE(hypot, Hypot, std::hypot(x, y))
OPDOCK_WIDE(logaddexp, Logaddexp, scalar::logaddexp(x, y))
#undef OPDOCK_WIDE

// Applies the vector function F where all lanes are within its range, and else `function` lane by
// lane.
template <class F, class G>
HWY_INLINE DoubleV guarded(DoubleV x, const G& function) {
  const DoubleTag d;
  const auto is_inside = hn::And(hn::Ge(x, hn::Set(d, F::kLow)), hn::Le(x, hn::Set(d, F::kHigh)));
  if (HWY_LIKELY(hn::AllTrue(d, is_inside))) return F()(d, x);
  double lanes[kHalfLanes];
  hn::StoreU(x, d, lanes);
  for (double& lane : lanes) lane = function(lane);
  return hn::LoadU(d, lanes);
}
template <class F, class G>
HWY_INLINE Doubles guarded(Doubles a, const G& function) {
  return {guarded<F>(a.low, function), guarded<F>(a.high, function)};
}
HWY_INLINE Doubles log(Doubles a) {
  return guarded<NearLog>(a, [](double x) { return std::log(x); });
}
HWY_INLINE Floats log(Floats a) {
  const DoubleTag d;
  const Doubles wide = widen(a);
  return narrow({Log()(d, wide.low), Log()(d, wide.high)});
}
HWY_INLINE Doubles exp(Doubles a) {
  return guarded<NearExp>(a, [](double x) { return std::exp(x); });
}
HWY_INLINE Floats sin(Floats a) {
  return narrow(guarded<NearSin>(widen(a), [](double x) { return std::sin(x); }));
}
HWY_INLINE Floats cos(Floats a) {
  return narrow(guarded<NearCos>(widen(a), [](double x) { return std::cos(x); }));
}
HWY_INLINE Floats tan(Floats a) {
  return narrow(guarded<NearTan>(widen(a), [](double x) { return std::tan(x); }));
}

template <class Value>
HWY_INLINE Value floor_divide(Value a, Value b) {
  return lane_by_lane<Value>(a, b, [](auto x, auto y) { return scalar::floor_divide(x, y); });
}
template <class Value>
HWY_INLINE Value remainder(Value a, Value b) {
  return lane_by_lane<Value>(a, b, [](auto x, auto y) { return scalar::remainder(x, y); });
}
HWY_INLINE Floats fmod(Floats a, Floats b) {
  return lane_by_lane<Floats>(a, b, [](float x, float y) { return std::fmod(x, y); });
}
HWY_INLINE Doubles fmod(Doubles a, Doubles b) {
  return lane_by_lane<Doubles>(a, b, [](double x, double y) { return std::fmod(x, y); });
}

// ---- Integers

#define OPDOCK_INTEGER(name, expression)                                            \
  HWY_INLINE Ints name(Ints a) {                                                    \
    return lane_by_lane<Ints>(                                                      \
        a, [](int64_t x) -> int32_t { return static_cast<int32_t>(expression); });  \
  }                                                                                 \
  HWY_INLINE Longs name(Longs a) {                                                  \
    return lane_by_lane<Longs>(a, [](int64_t x) -> int64_t { return expression; }); \
  }
OPDOCK_INTEGER(neg, scalar::negative(x))
OPDOCK_INTEGER(abs, x < 0 ? scalar::negative(x) : x)
OPDOCK_INTEGER(sign, (x > 0) - (x < 0))
OPDOCK_INTEGER(relu, x < 0 ? 0 : x)
OPDOCK_INTEGER(bitwise_not, ~x)
#undef OPDOCK_INTEGER
#define OPDOCK_INTEGER(name, expression)                                                          \
  HWY_INLINE Ints name(Ints a, Ints b) {                                                          \
    return lane_by_lane<Ints>(                                                                    \
        a, b, [](int64_t x, int64_t y) -> int32_t { return static_cast<int32_t>(expression); });  \
  }                                                                                               \
  HWY_INLINE Longs name(Longs a, Longs b) {                                                       \
    return lane_by_lane<Longs>(a, b, [](int64_t x, int64_t y) -> int64_t { return expression; }); \
  }
// Arithmetic of unsigned numbers wraps.
OPDOCK_INTEGER(mul, static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y)))
OPDOCK_INTEGER(floor_divide, scalar::floor_divide(x, y))
OPDOCK_INTEGER(remainder, scalar::remainder(x, y))
OPDOCK_INTEGER(fmod, scalar::rest(x, y))
OPDOCK_INTEGER(pow, scalar::power(x, y))
OPDOCK_INTEGER(maximum, x > y ? x : y)
OPDOCK_INTEGER(minimum, x < y ? x : y)
OPDOCK_INTEGER(clamp_min, x > y ? x : y)
OPDOCK_INTEGER(clamp_max, x < y ? x : y)
OPDOCK_INTEGER(bitwise_left_shift, scalar::shift_left(x, y))
OPDOCK_INTEGER(bitwise_right_shift, scalar::shift_right(x, y))
#undef OPDOCK_INTEGER
#define OPDOCK_INTEGER(name, Function)                                 \
  HWY_INLINE Ints name(Ints a, Ints b) {                               \
    return hn::Function(a, b);                                         \
  }                                                                    \
  HWY_INLINE Longs name(Longs a, Longs b) {                            \
    return {hn::Function(a.low, b.low), hn::Function(a.high, b.high)}; \
  }
OPDOCK_INTEGER(add, Add)
OPDOCK_INTEGER(sub, Sub)
OPDOCK_INTEGER(bitwise_and, And)
OPDOCK_INTEGER(bitwise_or, Or)
OPDOCK_INTEGER(bitwise_xor, Xor)
#undef OPDOCK_INTEGER

// ---- Comparisons, tests and choices

#define OPDOCK_COMPARE(name, expression)                                           \
  HWY_INLINE Bools name(Floats x, Floats y) {                                      \
    return expression;                                                             \
  }                                                                                \
  HWY_INLINE Bools name(Doubles a, Doubles b) {                                    \
    const auto compare = [](DoubleV x, DoubleV y) HWY_ATTR { return expression; }; \
    return joined(DoubleTag(), compare(a.low, b.low), compare(a.high, b.high));    \
  }                                                                                \
  HWY_INLINE Bools name(Ints x, Ints y) {                                          \
    return from_mask_bits(hn::VecFromMask(IntTag(), expression));                  \
  }                                                                                \
  HWY_INLINE Bools name(Longs a, Longs b) {                                        \
    const auto compare = [](LongV x, LongV y) HWY_ATTR { return expression; };     \
    return joined(LongTag(), compare(a.low, b.low), compare(a.high, b.high));      \
  }
OPDOCK_COMPARE(eq, hn::Eq(x, y))
OPDOCK_COMPARE(ne, hn::Not(hn::Eq(x, y)))
OPDOCK_COMPARE(lt, hn::Lt(x, y))
OPDOCK_COMPARE(gt, hn::Gt(x, y))
#undef OPDOCK_COMPARE
#define OPDOCK_COMPARE(name, of_floats, Other)                                              \
  HWY_INLINE Bools name(Floats x, Floats y) {                                               \
    return hn::of_floats(x, y);                                                             \
  }                                                                                         \
  HWY_INLINE Bools name(Doubles a, Doubles b) {                                             \
    return joined(DoubleTag(), hn::of_floats(a.low, b.low), hn::of_floats(a.high, b.high)); \
  }                                                                                         \
  HWY_INLINE Bools name(Ints x, Ints y) {                                                   \
    return hn::Not(Other(x, y));                                                            \
  }                                                                                         \
  HWY_INLINE Bools name(Longs x, Longs y) {                                                 \
    return hn::Not(Other(x, y));                                                            \
  }
OPDOCK_COMPARE(le, Le, gt)
OPDOCK_COMPARE(ge, Ge, lt)
#undef OPDOCK_COMPARE

HWY_INLINE Bools logical_not(Bools a) {
  return hn::Not(a);
}
HWY_INLINE Bools bitwise_not(Bools a) {
  return hn::Not(a);
}
#define OPDOCK_BOOL(name, expression)       \
  HWY_INLINE Bools name(Bools a, Bools b) { \
    return expression;                      \
  }
OPDOCK_BOOL(logical_and, hn::And(a, b))
OPDOCK_BOOL(logical_or, hn::Or(a, b))
OPDOCK_BOOL(logical_xor, hn::Xor(a, b))
OPDOCK_BOOL(bitwise_and, hn::And(a, b))
OPDOCK_BOOL(bitwise_or, hn::Or(a, b))
OPDOCK_BOOL(bitwise_xor, hn::Xor(a, b))
OPDOCK_BOOL(eq, hn::Not(hn::Xor(a, b)))
OPDOCK_BOOL(ne, hn::Xor(a, b))
OPDOCK_BOOL(lt, hn::AndNot(a, b))
OPDOCK_BOOL(le, hn::Or(hn::Not(a), b))
OPDOCK_BOOL(gt, hn::AndNot(b, a))
OPDOCK_BOOL(ge, hn::Or(a, hn::Not(b)))
#undef OPDOCK_BOOL

// Tests of floats; numbers of other types are finite.
#define OPDOCK_TEST(name, expression)                                \
  template <class D, class V>                                        \
  HWY_INLINE auto name##_test(D d, V x) {                            \
    (void)d;                                                         \
    return expression;                                               \
  }                                                                  \
  HWY_INLINE Bools name(Floats a) {                                  \
    return name##_test(FloatTag(), a);                               \
  }                                                                  \
  HWY_INLINE Bools name(Doubles a) {                                 \
    const DoubleTag d;                                               \
    return joined(d, name##_test(d, a.low), name##_test(d, a.high)); \
  }
OPDOCK_TEST(isnan, is_nan(x))
OPDOCK_TEST(isinf, hn::Eq(hn::Abs(x), hn::Set(d, static_cast<hn::TFromD<D>>(HUGE_VAL))))
OPDOCK_TEST(isfinite, hn::Lt(hn::Abs(x), hn::Set(d, static_cast<hn::TFromD<D>>(HUGE_VAL))))
OPDOCK_TEST(signbit, hn::Lt(hn::CopySign(hn::Set(d, hn::TFromD<D>(1)), x), hn::Zero(d)))
#undef OPDOCK_TEST
template <class Value>
HWY_INLINE Bools isnan(Value a) {
  return ne(a, a);
}
template <class Value>
HWY_INLINE Bools isinf(Value a) {
  return ne(a, a);
}
template <class Value>
HWY_INLINE Bools isfinite(Value a) {
  return eq(a, a);
}
HWY_INLINE Bools signbit(Ints a) {
  return lt(a, ints(0));
}
HWY_INLINE Bools signbit(Longs a) {
  return lt(a, longs(0));
}
HWY_INLINE Bools signbit(Bools a) {
  return ne(a, a);
}

HWY_INLINE Floats where(Bools choice, Floats a, Floats b) {
  return hn::IfThenElse(choice, a, b);
}
HWY_INLINE Ints where(Bools choice, Ints a, Ints b) {
  return hn::IfThenElse(hn::MaskFromVec(mask_bits(choice)), a, b);
}
HWY_INLINE Doubles where(Bools choice, Doubles a, Doubles b) {
  const auto of = halves(DoubleTag(), choice);
  return {hn::IfThenElse(of.low, a.low, b.low), hn::IfThenElse(of.high, a.high, b.high)};
}
HWY_INLINE Longs where(Bools choice, Longs a, Longs b) {
  const auto of = halves(LongTag(), choice);
  return {hn::IfThenElse(of.low, a.low, b.low), hn::IfThenElse(of.high, a.high, b.high)};
}
HWY_INLINE Bools where(Bools choice, Bools a, Bools b) {
  return hn::Or(hn::And(choice, a), hn::AndNot(choice, b));
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_OPERATIONS_HPP_
