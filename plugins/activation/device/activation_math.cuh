// The activations and their derivatives of one element, in float. float's are as accurate as
// PyTorch's; those of 16-bit elements take some 15 instructions, and are exact to 1e-5 before they
// are rounded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_params.cuh"
#include "opdock/device.cuh"

namespace activation {

using namespace opdock;

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLarge = 0x1p125f;        // finite; its inverse is no subnormal number
inline constexpr float kDensity = 0.398942280f;  // of the normal distribution at 0: 1/sqrt(2 pi)

// tanh gelu is v * sigmoid(w), with w = v * (kTanh1 + kTanh3 * v^2), twice what tanh is taken of.
inline constexpr float kTanh1 = 1.59576912f;  // 2 sqrt(2 / pi)
inline constexpr float kTanh3 = kTanh1 * 0.044715f;
OPDOCK_DEVICE float tanh_argument(float v) {
  return v * opdock::fma(kTanh3, v * v, kTanh1);
}

template <typename T>
struct Math {
  static OPDOCK_DEVICE float divide(float a, float b) { return a * rcp(b); }
  // e^-x
  static OPDOCK_DEVICE float decay(float x) { return opdock::exp2(-kLog2E * x); }
  // Phi(x), the normal distribution, and *density: Phi'(x). By e^(-x^2/2) t P(t), t = 1/(1 + p x):
  // the form of Abramowitz and Stegun 7.1.26, fitted to 7e-6 of Phi, from x = -3.5 down to 2.4e-4.
  static OPDOCK_DEVICE float normal(float x, float* density) {
    const float a = x < 0.0f ? -x : x;
    const float e = opdock::exp2(a * (a * (-0.5f * kLog2E)));
    const float t = rcp(opdock::fma(0.36f, a, 1.0f));
    float poly = opdock::fma(-0.0949539021f, t, 0.242833272f);
    poly = opdock::fma(poly, t, 0.0493053831f);
    poly = opdock::fma(poly, t, 0.160569206f);
    poly = opdock::fma(poly, t, 0.142242581f);
    const float tail = poly * (t * e);
    *density = e * kDensity;
    return x < 0.0f ? tail : 1.0f - tail;
  }
  static OPDOCK_DEVICE float gelu(float x) {
    float density;
    return x * normal(x, &density);
  }
  // And 1 - sigmoid(w), exact where that is small.
  static OPDOCK_DEVICE float sigmoid(float w, float* outside) {
    const float e = decay(w), s = rcp(1.0f + e);
    *outside = opdock::min(e, kLarge) * s;
    return s;
  }
  // x times the sigmoid s.
  static OPDOCK_DEVICE float times(float x, float s, float) { return x * s; }
  static OPDOCK_DEVICE float gelu_tanh(float x) {
    return divide(x, 1.0f + decay(tanh_argument(x)));
  }
};

template <>
struct Math<float> {
  static OPDOCK_DEVICE float divide(float a, float b) { return a / b; }
  static OPDOCK_DEVICE float decay(float x) { return opdock::exp(-x); }
  static OPDOCK_DEVICE float normal(float x, float* density) {
    *density = opdock::exp(-0.5f * x * x) * kDensity;
    return opdock::fma(0.5f, opdock::erf(x * 0.707106781f), 0.5f);
  }
  static OPDOCK_DEVICE float gelu(float x) {
    const float half = 0.5f * x;
    return opdock::fma(half, opdock::erf(x * 0.707106781f), half);
  }
  static OPDOCK_DEVICE float sigmoid(float w, float* outside) {
    const float half = 0.5f * opdock::tanh(0.5f * w);
    *outside = 0.5f - half;
    return 0.5f + half;
  }
  // Of s and what it leaves to 1 the smaller one is exact.
  static OPDOCK_DEVICE float times(float x, float s, float outside) {
    return s < 0.5f ? x * s : opdock::fma(-x, outside, x);
  }
  static OPDOCK_DEVICE float gelu_tanh(float x) {
    const float half = 0.5f * x;
    return opdock::fma(half, opdock::tanh(0.5f * tanh_argument(x)), half);
  }
};

template <typename T>
OPDOCK_DEVICE float silu(float x) {
  if constexpr (sizeof(T) < sizeof(float)) {
    return Math<T>::divide(x, 1.0f + Math<T>::decay(x));
  } else {
    const float m = opdock::expm1(-x), d = 2.0f + m, y = x / d;
    // What the roundings of the sum and of the quotient have lost comes in again; far below 0 the 2
    // is nothing, and the sum may be infinite.
    if (!(d < 0x1p24f) || !(x < infinity())) return y;
    const float lost = m - (d - 2.0f);
    const float rest = opdock::fma(-y, lost, opdock::fma(-y, d, x));
    return opdock::fma(rest, rcp(d), y);
  }
}
// Each x becomes act(x).
template <typename T, int Size>
OPDOCK_DEVICE void activate(int act, float (&x)[Size]) {
  switch (act) {  // the same for all threads
    case kRelu:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) x[k] = x[k] < 0.0f ? 0.0f : x[k];  // NaN stays
      break;
    case kGeluTanh:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) x[k] = Math<T>::gelu_tanh(x[k]);
      break;
    case kGeluErf:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) x[k] = Math<T>::gelu(x[k]);
      break;
    case kSilu:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) x[k] = silu<T>(x[k]);
      break;
    default:
      break;
  }
}

// silu, and its derivative times grad.
template <typename T>
OPDOCK_DEVICE void differentiate_silu(float* x, float* grad) {
  const float e = Math<T>::decay(*x), below = 1.0f + e;
  const float s = Math<T>::divide(1.0f, below), value = Math<T>::divide(*x, below);
  *grad *= opdock::fma(value, opdock::min(e, kLarge) * s, s);  // e * s is 1 - s
  *x = value;
}

// tanh gelu, and its derivative times grad.
template <typename T>
OPDOCK_DEVICE void differentiate_gelu_tanh(float* x, float* grad) {
  // Beyond, the sigmoid is 0 or 1; the square must not become infinite.
  const float square = opdock::min(*x * *x, 1e3f);
  const float w = *x * opdock::fma(kTanh3, square, kTanh1);
  float outside;
  const float s = Math<T>::sigmoid(w, &outside), value = Math<T>::times(*x, s, outside);
  *grad *= opdock::fma(value * outside, opdock::fma(3.0f * kTanh3, square, kTanh1), s);
  *x = value;
}

// Each grad, of act(x), becomes that of x; each x becomes act(x).
template <typename T, int Size>
OPDOCK_DEVICE void differentiate(int act, float (&x)[Size], float (&grad)[Size]) {
  switch (act) {
    case kRelu:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) {
        if (x[k] <= 0.0f) grad[k] = 0.0f;
        x[k] = x[k] < 0.0f ? 0.0f : x[k];
      }
      break;
    case kGeluTanh:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) differentiate_gelu_tanh<T>(&x[k], &grad[k]);
      break;
    case kGeluErf:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) {
        float density;
        const float below = Math<T>::normal(x[k], &density);
        grad[k] *= opdock::fma(x[k], density, below);
        x[k] *= below;
      }
      break;
    case kSilu:
      OPDOCK_UNROLL
      for (int k = 0; k < Size; ++k) differentiate_silu<T>(&x[k], &grad[k]);
      break;
    default:
      break;
  }
}

}  // namespace activation
