// Functions of doubles lane by lane with libm, and the divisions with remainder of floats, for
// which vectors would be no more accurate and hardly faster.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

inline double sigmoid(double x) {
  const double z = std::exp(-std::fabs(x));
  return (x < 0 ? z : 1) / (1 + z);
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

// As in Python: the quotient is rounded down, and the remainder has the sign of b.
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

template <class T>
void add_divisions(Kernels* kernels, CpuKind kind) {
  entry(kernels, Code::kFloorDivide, kind) =
      each2<T, T, decltype([](T a, T b) { return floor_divide(a, b); })>;
  entry(kernels, Code::kRemainder, kind) =
      each2<T, T, decltype([](T a, T b) { return remainder(a, b); })>;
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
  OPDOCK_SCALAR(kSigmoid, sigmoid(x))
  OPDOCK_SCALAR(kSilu, x * sigmoid(x))
  // As in PyTorch, whose threshold is 20.
  OPDOCK_SCALAR(kSoftplus, x > 20 ? x : (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x))))
  OPDOCK_SCALAR(kGelu, gelu(x))
  OPDOCK_SCALAR(kGeluTanh, gelu_tanh(x))
#undef OPDOCK_SCALAR
#define OPDOCK_SCALAR(code, expression) \
  set(Code::code, each2<double, double, decltype([](double x, double y) { return expression; })>);
  OPDOCK_SCALAR(kPow, std::pow(x, y))
  OPDOCK_SCALAR(kAtan2, std::atan2(x, y))
  OPDOCK_SCALAR(kHypot, std::hypot(x, y))
  OPDOCK_SCALAR(kLogaddexp, logaddexp(x, y))
#undef OPDOCK_SCALAR
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
