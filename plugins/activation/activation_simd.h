// The activations and their derivatives of vectors of float and double, for one instruction set
// level. NaN gives NaN; nothing overflows on the way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/activation_params.cuh"
#include "opdock/simd.hpp"

namespace activation {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// Phi(x) of the normal distribution Phi: up to `border` 1/2 + x N(x^2); beyond, with a = -x,
// e^(-a^2/2) r P(w), with r = 1 / (a + 3) or, for double, (a + 4), and w, linear in r, from -1
// to 1. Coefficients by interpolation at Chebyshev's nodes, to 1e-8 of what they stand for, or
// 5e-17.
template <class C>
struct NormalTail;
template <>
struct NormalTail<float> {
  static constexpr float border = 1.25f, shift = 3.0f, slope = 11.2264147f, start = -1.64150941f;
  static constexpr float near[] = {0.398942292f,    -0.066490218f,   0.00997232273f,
                                   -0.00118390762f, 0.000111092028f, -6.8223967e-06f};
  static constexpr float far[] = {0.669967115f,    0.243226826f,    0.0605011024f,
                                  0.00783424824f,  -0.00049136678f, -0.000320747262f,
                                  7.90367721e-07f, 1.33946396e-05f};
};
template <>
struct NormalTail<double> {
  static constexpr double border = 1.5, shift = 4.0, slope = 12.626344086021506,
                          start = -1.2956989247311828;
  static constexpr double near[] = {
      0.39894228040143265,     -0.066490380066904151,   0.0099735570100082434,
      -0.0011873282152510792,  0.00011543468662903356,  -9.4446537487193553e-06,
      6.6596529353698072e-07,  -4.1222341421162764e-08, 2.2704268005129701e-09,
      -1.1152970015013659e-10, 4.6549544005906055e-12,  -1.2722382151249488e-13};
  static constexpr double far[] = {
      0.65784213315189011,     0.3078370048043732,      0.11966412237924121,
      0.037141436963171431,    0.0084292903659463781,   0.001038149307739376,
      -9.2184333681652889e-05, -6.4170236500554848e-05, -5.4431064395351925e-06,
      2.8967801141423092e-06,  6.1592626128463745e-07,  -1.4620032693178967e-07,
      -4.999362233226974e-08,  9.6788751296827047e-09,  3.9218330372401898e-09,
      -8.1271111861174361e-10, -2.9390598445362433e-10, 5.7136459052255617e-11,
      1.6277221494986154e-11};
};

template <class D, class V, class C, size_t N>
HWY_INLINE V polynomial(D d, V x, const C (&coefficients)[N]) {
  V value = hn::Set(d, coefficients[N - 1]);
  for (size_t i = N - 1; i > 0; --i) value = hn::MulAdd(value, x, hn::Set(d, coefficients[i - 1]));
  return value;
}

// Phi(x), and *decay: e^(-x^2/2).
template <class D, class V>
HWY_INLINE V normal(D d, V x, V* decay) {
  using C = hn::TFromD<D>;
  using Tail = NormalTail<C>;
  const V a = hn::Abs(x), square = hn::Mul(a, a), one = hn::Set(d, C(1));
  *decay = hn::Exp(d, hn::Mul(square, hn::Set(d, C(-0.5))));
  const V near = hn::MulAdd(x, polynomial(d, square, Tail::near), hn::Set(d, C(0.5)));
  const V r = hn::Div(one, hn::Add(a, hn::Set(d, Tail::shift)));
  const V w = hn::MulAdd(r, hn::Set(d, Tail::slope), hn::Set(d, Tail::start));
  const V tail = hn::Mul(hn::Mul(*decay, r), polynomial(d, w, Tail::far));
  const V far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, Tail::border)), near, far);
}

// The sigmoid of w: up to `border` 1/2 + w T(w^2) / 2, which is tanh; to 4e-9 of it, or 1e-17.
template <class C>
struct SigmoidCentre;
template <>
struct SigmoidCentre<float> {
  static constexpr float border = 1.25f, most = 104.0f, large = 1e30f;
  static constexpr float near[] = {
      0.5f, -0.0416665748f, 0.00416597305f, -0.000419688353f, 4.0211311e-05f, -2.76227297e-06f};
};
template <>
struct SigmoidCentre<double> {
  static constexpr double border = 1.25, most = 720.0, large = 1e300;
  static constexpr double near[] = {0.5,
                                    -0.041666666666665769,
                                    0.0041666666666391418,
                                    -0.00042162698379645075,
                                    4.2713842741036321e-05,
                                    -4.3277441510039529e-06,
                                    4.3847442890428772e-07,
                                    -4.4400921199169626e-08,
                                    4.4725908783345119e-09,
                                    -4.3565785464311316e-10,
                                    3.6709609980799784e-11,
                                    -1.9075273886920264e-12};
};

// x times the sigmoid of w, whose sign is that of x. Beyond the border x / (1 + e^|w|) is the
// result or its distance from x, so that what is small is exact on either side.
template <class D, class V>
HWY_INLINE V times_sigmoid(D d, V x, V w) {
  using C = hn::TFromD<D>;
  using Centre = SigmoidCentre<C>;
  const V a = hn::Abs(w), one = hn::Set(d, C(1)), half = hn::Mul(x, hn::Set(d, C(0.5)));
  const V tanh = hn::Mul(w, polynomial(d, hn::Mul(w, w), Centre::near));
  const V near = hn::MulAdd(half, tanh, half);
  // Exp takes no larger numbers, and its result is infinite there; x must not be as well.
  const V e = hn::Exp(d, hn::Min(a, hn::Set(d, Centre::most)));
  const V rest = hn::Div(hn::Min(x, hn::Set(d, Centre::large)), hn::Add(one, e));
  const V far = hn::IfThenElse(hn::Lt(w, hn::Zero(d)), rest, hn::Sub(x, rest));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, Centre::border)), near, far);
}

// The same, *value, and the derivative times grad, where w is a function of x with this slope.
template <class D, class V>
HWY_INLINE V differentiate_sigmoid(D d, V x, V w, V slope, V grad, V* value) {
  using C = hn::TFromD<D>;
  using Centre = SigmoidCentre<C>;
  const V a = hn::Abs(w), one = hn::Set(d, C(1)), half = hn::Set(d, C(0.5));
  const auto is_near = hn::Lt(a, hn::Set(d, Centre::border)), negative = hn::Lt(w, hn::Zero(d));
  const V tanh = hn::Mul(w, polynomial(d, hn::Mul(w, w), Centre::near)), x_half = hn::Mul(x, half);
  const V e = hn::Exp(d, hn::Min(a, hn::Set(d, Centre::most)));
  const V rest = hn::Div(one, hn::Add(one, e)), most = hn::Sub(one, rest);
  const V part = hn::Mul(hn::Min(x, hn::Set(d, Centre::large)), rest);
  const V below = hn::IfThenElse(negative, rest, most),
          above = hn::IfThenElse(negative, most, rest);
  const V sigmoid = hn::IfThenElse(is_near, hn::MulAdd(half, tanh, half), below);
  const V outside = hn::IfThenElse(is_near, hn::NegMulAdd(half, tanh, half), above);
  const V far = hn::IfThenElse(negative, part, hn::Sub(x, part));
  *value = hn::IfThenElse(is_near, hn::MulAdd(x_half, tanh, x_half), far);
  return hn::Mul(grad, hn::MulAdd(hn::Mul(*value, outside), slope, sigmoid));
}

// tanh gelu is v * sigmoid(v * (kTanh1 + kTanh3 * v^2)).
inline constexpr double kTanh1 = 1.5957691216057308;  // 2 sqrt(2 / pi)
inline constexpr double kTanh3 = kTanh1 * 0.044715;
inline constexpr double kDensity = 0.3989422804014327;  // 1 / sqrt(2 pi)

template <int Act, class D, class V>
HWY_INLINE V activate(D d, V x) {
  using C = hn::TFromD<D>;
  V decay;
  if constexpr (Act == kRelu) return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
  if constexpr (Act == kGeluErf) return hn::Mul(x, normal(d, x, &decay));
  if constexpr (Act == kSilu) return times_sigmoid(d, x, x);
  if constexpr (Act == kGeluTanh) {
    const V cubed = hn::MulAdd(hn::Mul(x, x), hn::Set(d, C(kTanh3)), hn::Set(d, C(kTanh1)));
    return times_sigmoid(d, x, hn::Mul(x, cubed));
  }
  return x;
}

// The gradient of x, where grad is that of act(x), and *value: act(x).
template <int Act, class D, class V>
HWY_INLINE V differentiate(D d, V x, V grad, V* value) {
  using C = hn::TFromD<D>;
  const V one = hn::Set(d, C(1));
  *value = x;
  if constexpr (Act == kRelu) {
    *value = activate<Act>(d, x);
    return hn::IfThenElse(hn::Le(x, hn::Zero(d)), hn::Zero(d), grad);
  }
  if constexpr (Act == kGeluErf) {
    V decay;
    const V below = normal(d, x, &decay);
    *value = hn::Mul(x, below);
    return hn::Mul(grad, hn::MulAdd(hn::Mul(x, decay), hn::Set(d, C(kDensity)), below));
  }
  if constexpr (Act == kSilu || Act == kGeluTanh) {
    V w = x, slope = one;
    if constexpr (Act == kGeluTanh) {
      // Beyond, the sigmoid is 0 or 1; the square must not become infinite.
      const V square = hn::Min(hn::Mul(x, x), hn::Set(d, C(1e4)));
      w = hn::Mul(x, hn::MulAdd(square, hn::Set(d, C(kTanh3)), hn::Set(d, C(kTanh1))));
      slope = hn::MulAdd(square, hn::Set(d, C(3 * kTanh3)), hn::Set(d, C(kTanh1)));
    }
    return differentiate_sigmoid(d, x, w, slope, grad, value);
  }
  return grad;
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace activation
