// The activations and their derivatives for vectors, for one instruction set level. T is the type
// that elements have in memory: 16-bit types, computed as float, need fewer terms. NaN gives NaN;
// no intermediate value overflows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_tables.h"
#include "device/activation_params.cuh"
#include "opdock/simd.hpp"

namespace activation {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

template <class D, class V, class C, size_t N>
HWY_INLINE V polynomial(D d, V x, const C (&coefficients)[N]) {
  V value = hn::Set(d, coefficients[N - 1]);
  for (size_t i = N - 1; i > 0; --i) value = hn::MulAdd(value, x, hn::Set(d, coefficients[i - 1]));
  return value;
}

// Returns 1 / x, for float to 1e-7; x and 1 / x are normal numbers.
template <class D, class V>
HWY_INLINE V inverse(D d, V x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::Div(hn::Set(d, 1.0), x);
  } else {
    const V r = hn::ApproximateReciprocal(x);
    return hn::Mul(r, hn::NegMulAdd(x, r, hn::Set(d, 2.0f)));
  }
}

// Returns e^x / 2; for float, x is from -86 to 88.75, and outside of that the result is arbitrary.
// Highway's Exp handles all numbers. Rough: for float, accurate to 1e-7 |x|.
template <class T, bool Rough = false, class D, class V>
HWY_INLINE V half_exp(D d, V x) {
  if constexpr (sizeof(T) == 8) {
    return hn::Mul(hn::Exp(d, x), hn::Set(d, 0.5));
  } else {
    const hn::Rebind<int32_t, D> di;
    // 2^23 + 2^22 - 1: the sum's lowest bits are those of n - 1, where n is the nearest integer.
    const V shift = hn::Set(d, 12582911.0f), log2e = hn::Set(d, 1.44269502f);
    const V sum = hn::MulAdd(x, log2e, shift);
    V rest = hn::MulSub(x, log2e, hn::Sub(sum, shift));
    V power;
    if constexpr (Rough || sizeof(T) == 2) {
      power = polynomial(d, rest, Tables<T>::rough_exp2);
    } else {
      rest = hn::MulAdd(x, hn::Set(d, 1.92596299e-08f), rest);
      power = polynomial(d, rest, opdock::kExp2Polynomial);
    }
    return hn::BitCast(d, hn::Add(hn::BitCast(di, power), hn::ShiftLeft<23>(hn::BitCast(di, sum))));
  }
}

// Returns Phi(x) of the normal distribution Phi, and sets *decay to e^(-x^2/2).
template <class T, class D, class V>
HWY_INLINE V normal(D d, V x, V* decay) {
  using C = hn::TFromD<D>;
  using Table = typename Tables<T>::Normal;
  const V a = hn::Abs(x), square = hn::Mul(a, a), one = hn::Set(d, C(1));
  const auto counts = hn::Lt(a, hn::Set(d, Table::end));
  const V half = half_exp<T, true>(d, hn::Mul(square, hn::Set(d, C(-0.5))));
  *decay = hn::IfThenElseZero(counts, hn::Add(half, half));
  const V r = inverse(d, hn::MulAdd(a, hn::Set(d, Table::scale), hn::Set(d, Table::shift)));
  const V w = hn::MulAdd(r, hn::Set(d, Table::slope), hn::Set(d, Table::start));
  const V tail =
      hn::IfThenElseZero(counts, hn::Mul(hn::Mul(half, r), polynomial(d, w, Table::far)));
  const V far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  if constexpr (sizeof(T) == 2) {
    return far;
  } else {
    const V near = hn::MulAdd(x, polynomial(d, square, Table::near), hn::Set(d, C(0.5)));
    return hn::IfThenElse(hn::Lt(a, hn::Set(d, Table::border)), near, far);
  }
}

// Returns x / (1 + e^|w|), where x has the sign of w. x must not be infinite: the result would be
// NaN.
template <class T, class D, class V>
HWY_INLINE V outside(D d, V x, V w) {
  using C = hn::TFromD<D>;
  using Table = typename Tables<T>::Sigmoid;
  const V a = hn::Abs(w), one = hn::Set(d, C(1)), two = hn::Set(d, C(2));
  if constexpr (sizeof(T) == 2) {
    const V below = hn::MulAdd(half_exp<T>(d, a), two, one);
    return hn::Mul(x, hn::IfThenElseZero(hn::Lt(a, hn::Set(d, Table::end)), inverse(d, below)));
  } else {
    // At `end` the power is infinite.
    const V half = half_exp<T>(d, hn::Min(a, hn::Set(d, Table::end)));
    return hn::Div(x, hn::MulAdd(half, two, one));
  }
}

// Returns silu, x / (1 + e^-x), and sets *sigmoid to the sigmoid of x.
template <class T, class D, class V>
HWY_INLINE V silu(D d, V x, V* sigmoid) {
  using C = hn::TFromD<D>;
  using Table = typename Tables<T>::Sigmoid;
  const V one = hn::Set(d, C(1)), two = hn::Set(d, C(2)), end = hn::Set(d, Table::end);
  if constexpr (sizeof(T) == 2) {
    // For large x the clamped power is much larger than the true one, but too small to matter.
    const V half = half_exp<T>(d, hn::Max(hn::Neg(x), hn::Neg(end)));
    const V below = hn::MulAdd(half, two, one);
    const auto counts = hn::Gt(x, hn::Neg(end));
    *sigmoid = hn::IfThenElseZero(counts, hn::Div(one, below));  // exactly 1 for large x
    return hn::Mul(x, hn::IfThenElseZero(counts, inverse(d, below)));
  } else {
    const V half = half_exp<T>(d, hn::Min(hn::Max(hn::Neg(x), hn::Set(d, C(-86))), end));
    const V below = hn::MulAdd(half, two, one);
    *sigmoid = hn::Div(one, below);
    return hn::Div(x, below);
  }
}

// Returns x times the sigmoid of w, whose sign is that of x. Small results are exact on either
// side.
template <class T, class D, class V>
HWY_INLINE V times_sigmoid(D d, V x, V w) {
  using C = hn::TFromD<D>;
  using Table = typename Tables<T>::Sigmoid;
  const V rest = outside<T>(d, hn::Min(x, hn::Set(d, Table::large)), w);
  const V far = hn::IfThenElse(hn::Lt(w, hn::Zero(d)), rest, hn::Sub(x, rest));
  if constexpr (sizeof(T) == 2) {
    return far;
  } else {
    const V tanh = hn::Mul(w, polynomial(d, hn::Mul(w, w), Table::near));
    const V half = hn::Mul(x, hn::Set(d, C(0.5))), near = hn::MulAdd(half, tanh, half);
    return hn::IfThenElse(hn::Lt(hn::Abs(w), hn::Set(d, Table::border)), near, far);
  }
}

// Sets *value to times_sigmoid(x, w), and returns the derivative times grad, where w has this slope
// in x.
template <class T, class D, class V>
HWY_INLINE V differentiate_sigmoid(D d, V x, V w, V slope, V grad, V* value) {
  using C = hn::TFromD<D>;
  using Table = typename Tables<T>::Sigmoid;
  const V one = hn::Set(d, C(1)), half = hn::Set(d, C(0.5));
  const auto negative = hn::Lt(w, hn::Zero(d));
  const V rest = outside<T>(d, one, w), most = hn::Sub(one, rest);
  const V part = hn::Mul(hn::Min(x, hn::Set(d, Table::large)), rest);
  V sigmoid = hn::IfThenElse(negative, rest, most);
  V other = hn::IfThenElse(negative, most, rest);
  *value = hn::IfThenElse(negative, part, hn::Sub(x, part));
  if constexpr (sizeof(T) > 2) {
    const auto is_near = hn::Lt(hn::Abs(w), hn::Set(d, Table::border));
    const V tanh = hn::Mul(w, polynomial(d, hn::Mul(w, w), Table::near)), x_half = hn::Mul(x, half);
    sigmoid = hn::IfThenElse(is_near, hn::MulAdd(half, tanh, half), sigmoid);
    other = hn::IfThenElse(is_near, hn::NegMulAdd(half, tanh, half), other);
    *value = hn::IfThenElse(is_near, hn::MulAdd(x_half, tanh, x_half), *value);
  }
  return hn::Mul(grad, hn::MulAdd(hn::Mul(*value, other), slope, sigmoid));
}

// tanh gelu is v * sigmoid(v * (kTanh1 + kTanh3 * v^2)).
inline constexpr double kTanh1 = 1.5957691216057308;  // 2 sqrt(2 / pi)
inline constexpr double kTanh3 = kTanh1 * 0.044715;
inline constexpr double kDensity = 0.3989422804014327;  // 1 / sqrt(2 pi)

template <class T, int Act, class D, class V>
HWY_INLINE V activate(D d, V x) {
  using C = hn::TFromD<D>;
  V rest;
  if constexpr (Act == kRelu) return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
  if constexpr (Act == kGeluErf) return hn::Mul(x, normal<T>(d, x, &rest));
  if constexpr (Act == kSilu) return silu<T>(d, x, &rest);
  if constexpr (Act == kGeluTanh) {
    const V cubed = hn::MulAdd(hn::Mul(x, x), hn::Set(d, C(kTanh3)), hn::Set(d, C(kTanh1)));
    return times_sigmoid<T>(d, x, hn::Mul(x, cubed));
  }
  return x;
}

// Returns the gradient of x, where grad is that of act(x), and sets *value to act(x).
template <class T, int Act, class D, class V>
HWY_INLINE V differentiate(D d, V x, V grad, V* value) {
  using C = hn::TFromD<D>;
  *value = x;
  if constexpr (Act == kRelu) {
    *value = activate<T, Act>(d, x);
    return hn::IfThenElse(hn::Le(x, hn::Zero(d)), hn::Zero(d), grad);
  }
  if constexpr (Act == kGeluErf) {
    V decay;
    const V below = normal<T>(d, x, &decay);
    *value = hn::Mul(x, below);
    return hn::Mul(grad, hn::MulAdd(hn::Mul(x, decay), hn::Set(d, C(kDensity)), below));
  }
  if constexpr (Act == kSilu) {
    V sigmoid;
    *value = silu<T>(d, x, &sigmoid);
    const V rough = hn::Mul(x, sigmoid), other = hn::Sub(hn::Set(d, C(1)), sigmoid);
    if constexpr (sizeof(T) == 2) *value = rough;
    return hn::Mul(grad, hn::MulAdd(rough, other, sigmoid));
  }
  if constexpr (Act == kGeluTanh) {
    // For larger x, the sigmoid is 0 or 1; the square must not become infinite.
    const V square = hn::Min(hn::Mul(x, x), hn::Set(d, C(1e4)));
    const V cubed = hn::MulAdd(square, hn::Set(d, C(kTanh3)), hn::Set(d, C(kTanh1)));
    const V slope = hn::MulAdd(square, hn::Set(d, C(3 * kTanh3)), hn::Set(d, C(kTanh1)));
    return differentiate_sigmoid<T>(d, x, hn::Mul(x, cubed), slope, grad, value);
  }
  return grad;
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace activation
