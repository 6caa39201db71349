// Functions of doubles lane by lane with libm, and the divisions with remainder of floats, for
// which vectors would be no more accurate and hardly faster.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

template <class T>
void add_divisions(Kernels* kernels, CpuKind kind) {
  entry(kernels, Code::kFloorDivide, kind) =
      each2<T, T, decltype([](T a, T b) { return scalar::floor_divide(a, b); })>;
  entry(kernels, Code::kRemainder, kind) =
      each2<T, T, decltype([](T a, T b) { return scalar::remainder(a, b); })>;
  entry(kernels, Code::kFmod, kind) =
      each2<T, T, decltype([](T a, T b) { return std::fmod(a, b); })>;
}

}  // namespace

void add_scalar_functions(Kernels* kernels) {
  add_divisions<float>(kernels, CpuKind::kFloat);
  add_divisions<double>(kernels, CpuKind::kDouble);
  const auto set = [&](Code code, Kernel kernel) {
    entry(kernels, code, CpuKind::kDouble) = kernel;
  };
#define OPDOCK_SCALAR(code, expression) \
  set(Code::code, each1<double, double, decltype([](double x) { return expression; })>);
  OPDOCK_SCALAR(kExp2, std::exp2(x))
  OPDOCK_SCALAR(kExpm1, std::expm1(x))
  OPDOCK_SCALAR(kLog2, std::log2(x))
  OPDOCK_SCALAR(kLog10, std::log10(x))
  OPDOCK_SCALAR(kLog1p, std::log1p(x))
  OPDOCK_SCALAR(kSin, std::sin(x))
  OPDOCK_SCALAR(kCos, std::cos(x))
  OPDOCK_SCALAR(kTan, std::tan(x))
  OPDOCK_SCALAR(kAsin, std::asin(x))
  OPDOCK_SCALAR(kAcos, std::acos(x))
  OPDOCK_SCALAR(kAtan, std::atan(x))
  OPDOCK_SCALAR(kSinh, std::sinh(x))
  OPDOCK_SCALAR(kCosh, std::cosh(x))
  OPDOCK_SCALAR(kTanh, std::tanh(x))
  OPDOCK_SCALAR(kAsinh, std::asinh(x))
  OPDOCK_SCALAR(kAcosh, std::acosh(x))
  OPDOCK_SCALAR(kAtanh, std::atanh(x))
  OPDOCK_SCALAR(kErf, std::erf(x))
  OPDOCK_SCALAR(kErfc, std::erfc(x))
  OPDOCK_SCALAR(kSoftplus, scalar::softplus(x))
#undef OPDOCK_SCALAR
#define OPDOCK_SCALAR(code, expression) \
  set(Code::code, each2<double, double, decltype([](double x, double y) { return expression; })>);
  OPDOCK_SCALAR(kPow, std::pow(x, y))
  OPDOCK_SCALAR(kAtan2, std::atan2(x, y))
  OPDOCK_SCALAR(kHypot, std::hypot(x, y))
  OPDOCK_SCALAR(kLogaddexp, scalar::logaddexp(x, y))
#undef OPDOCK_SCALAR
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
