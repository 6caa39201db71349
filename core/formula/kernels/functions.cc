// Functions of floats over vectors, most of them computed in double, and those of doubles for which
// Highway's are accurate.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "formula/kernels/vector_math.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

#define OPDOCK_FUNCTION(Name, expression)     \
  struct Name {                               \
    template <class D, class V>               \
    HWY_INLINE V operator()(D d, V x) const { \
      return expression;                      \
    }                                         \
  };
OPDOCK_FUNCTION(Exp, exp(d, x))
OPDOCK_FUNCTION(Exp2, exp2(d, x))
OPDOCK_FUNCTION(Sigmoid, sigmoid(d, x))
OPDOCK_FUNCTION(Silu, silu(d, x))
OPDOCK_FUNCTION(Expm1, wide_expm1(d, x))
OPDOCK_FUNCTION(Log, wide_log(d, x))
OPDOCK_FUNCTION(Log2, hn::Mul(wide_log(d, x), hn::Set(d, 1.4426950408889634)))
OPDOCK_FUNCTION(Log10, hn::Mul(wide_log(d, x), hn::Set(d, 0.4342944819032518)))
OPDOCK_FUNCTION(Log1p, wide_log1p(d, x))
OPDOCK_FUNCTION(Tanh, wide_tanh(d, x))
OPDOCK_FUNCTION(Erf, wide_erf(d, x))
OPDOCK_FUNCTION(Erfc, wide_erfc(d, x))
OPDOCK_FUNCTION(Gelu, wide_gelu(d, x))
OPDOCK_FUNCTION(GeluTanh, wide_gelu_tanh(d, x))
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

// Applies the vector function F where all lanes are within its range, and else G lane by lane. T
// is what the elements are in memory.
template <class T, class F, class G>
void guarded(void* out, const Source* args, int64_t n) {
  const DoubleTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<T> a(args[0], lanes);
  T* const to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next()) {
    hn::VFromD<DoubleTag> x;
    if constexpr (sizeof(T) == 4) {
      x = load_wide(a.at);
    } else {
      x = hn::LoadU(d, a.at);
    }
    const auto is_inside = hn::And(hn::Ge(x, hn::Set(d, F::kLow)), hn::Le(x, hn::Set(d, F::kHigh)));
    if (HWY_LIKELY(hn::AllTrue(d, is_inside))) {
      if constexpr (sizeof(T) == 4) {
        store_wide(F()(d, x), to + i);
      } else {
        hn::StoreU(F()(d, x), d, to + i);
      }
    } else {
      for (int64_t k = 0; k < lanes; ++k)
        to[i + k] = static_cast<T>(G()(static_cast<double>(a.at[k])));
    }
  }
}
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

}  // namespace

void add_functions(Kernels* kernels) {
  const auto set = [&](Code code, Kernel kernel) {
    entry(kernels, code, CpuKind::kFloat) = kernel;
  };
  set(Code::kExp, unary<float, Exp>);
  set(Code::kExp2, unary<float, Exp2>);
  set(Code::kSigmoid, unary<float, Sigmoid>);
  set(Code::kSilu, unary<float, Silu>);
  set(Code::kExpm1, wide_unary<Expm1>);
  set(Code::kLog, wide_unary<Log>);
  set(Code::kLog2, wide_unary<Log2>);
  set(Code::kLog10, wide_unary<Log10>);
  set(Code::kLog1p, wide_unary<Log1p>);
  set(Code::kTanh, wide_unary<Tanh>);
  set(Code::kErf, wide_unary<Erf>);
  set(Code::kErfc, wide_unary<Erfc>);
  set(Code::kGelu, wide_unary<Gelu>);
  set(Code::kGeluTanh, wide_unary<GeluTanh>);
  set(Code::kAsin, wide_unary<Asin>);
  set(Code::kAcos, wide_unary<Acos>);
  set(Code::kAtan, wide_unary<Atan>);
  set(Code::kSinh, wide_unary<Sinh>);
  set(Code::kCosh, wide_unary<Cosh>);
  set(Code::kAsinh, wide_unary<Asinh>);
  set(Code::kAcosh, wide_unary<Acosh>);
  set(Code::kAtanh, wide_unary<Atanh>);
  set(Code::kSoftplus, wide_unary<Softplus>);
  set(Code::kSin, guarded<float, NearSin, decltype([](double x) { return std::sin(x); })>);
  set(Code::kCos, guarded<float, NearCos, decltype([](double x) { return std::cos(x); })>);
  set(Code::kTan, guarded<float, NearTan, decltype([](double x) { return std::tan(x); })>);
  set(Code::kAtan2, wide_binary<Atan2>);
  set(Code::kHypot, wide_binary<Hypot>);
  set(Code::kLogaddexp, wide_binary<Logaddexp>);
  set(Code::kPow, wide_binary<Pow>);
  entry(kernels, Code::kExp, CpuKind::kDouble) =
      guarded<double, NearExp, decltype([](double x) { return std::exp(x); })>;
  entry(kernels, Code::kLog, CpuKind::kDouble) =
      guarded<double, NearLog, decltype([](double x) { return std::log(x); })>;
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
