// Arithmetic of floats and doubles.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

template <class T>
void add_arithmetic_of(Kernels* kernels, CpuKind kind) {
  const auto set = [&](Code code, Kernel kernel) { entry(kernels, code, kind) = kernel; };
  set(Code::kNegative, unary<T, Negative>);
  set(Code::kAbs, unary<T, Abs>);
  set(Code::kSign, unary<T, Sign>);
  set(Code::kRelu, unary<T, Relu>);
  set(Code::kFloor, unary<T, Floor>);
  set(Code::kCeil, unary<T, Ceil>);
  set(Code::kTrunc, unary<T, Trunc>);
  set(Code::kRound, unary<T, Round>);
  set(Code::kSqrt, unary<T, Sqrt>);
  set(Code::kRsqrt, unary<T, Rsqrt>);
  set(Code::kReciprocal, unary<T, Reciprocal>);
  set(Code::kAdd, binary<T, Add>);
  set(Code::kSub, binary<T, Sub>);
  set(Code::kMul, binary<T, Mul>);
  set(Code::kDiv, binary<T, Div>);
  set(Code::kMaximum, binary<T, Maximum>);
  set(Code::kMinimum, binary<T, Minimum>);
  set(Code::kClampMin, binary<T, Maximum>);
  set(Code::kClampMax, binary<T, Minimum>);
  set(Code::kCopysign, binary<T, Copysign>);
#if HWY_NATIVE_FMA
  set(Code::kFma, ternary<T, Fma>);
#else
  set(Code::kFma, each3<T, decltype([](T a, T b, T c) { return std::fma(a, b, c); })>);
#endif
}

}  // namespace

void add_arithmetic(Kernels* kernels) {
  add_arithmetic_of<float>(kernels, CpuKind::kFloat);
  add_arithmetic_of<double>(kernels, CpuKind::kDouble);
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
