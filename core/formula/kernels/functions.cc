// Functions of floats over vectors, most of them computed in double, and those of doubles for which
// Highway's are accurate.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

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

}  // namespace

void add_functions(Kernels* kernels) {
  const auto set = [&](Code code, Kernel kernel) {
    entry(kernels, code, CpuKind::kFloat) = kernel;
  };
  set(Code::kExp, unary<float, Exp>);
  set(Code::kExp2, unary<float, Exp2>);
  set(Code::kSigmoid, unary<float, Sigmoid>);
  set(Code::kSilu, unary<float, Silu>);
  set(Code::kGelu, unary<float, Gelu>);
  set(Code::kGeluTanh, unary<float, GeluTanh>);
  set(Code::kExpm1, wide_unary<Expm1>);
  set(Code::kLog, wide_unary<Log>);
  set(Code::kLog2, wide_unary<Log2>);
  set(Code::kLog10, wide_unary<Log10>);
  set(Code::kLog1p, wide_unary<Log1p>);
  set(Code::kTanh, wide_unary<Tanh>);
  set(Code::kErf, wide_unary<Erf>);
  set(Code::kErfc, wide_unary<Erfc>);
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
  entry(kernels, Code::kSigmoid, CpuKind::kDouble) = unary<double, Sigmoid>;
  entry(kernels, Code::kSilu, CpuKind::kDouble) = unary<double, Silu>;
  entry(kernels, Code::kGelu, CpuKind::kDouble) = unary<double, Gelu>;
  entry(kernels, Code::kGeluTanh, CpuKind::kDouble) = unary<double, GeluTanh>;
  entry(kernels, Code::kExp, CpuKind::kDouble) =
      guarded<double, NearExp, decltype([](double x) { return std::exp(x); })>;
  entry(kernels, Code::kLog, CpuKind::kDouble) =
      guarded<double, NearLog, decltype([](double x) { return std::log(x); })>;
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
