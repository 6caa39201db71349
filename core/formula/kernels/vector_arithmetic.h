// Arithmetic of vectors, as functors of a tag and vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {

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

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
