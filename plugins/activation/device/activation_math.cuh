// The activations and their derivatives of one element, in float. float's are as accurate as
// PyTorch's; those of 16-bit elements take some 10 instructions, and are exact to 1e-5 before they
// are rounded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_params.cuh"
#include "opdock/device.cuh"

namespace activation {

using namespace opdock;

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kDensity = 0.398942280f;  // of the normal distribution at 0: 1/sqrt(2 pi)

// tanh gelu is v * sigmoid(w); w is v * (a + b * v^2), twice what tanh is taken of, its derivative
// a + 3 b * v^2, with a = 2 sqrt(2 / pi) and b = 0.044715 a. For powers of 2, log2(e) times these.
inline constexpr float kSlope1 = 1.59576912f, kSlope3 = 0.214064449f;
inline constexpr float kPower1 = 2.3022082f, kPower3 = 0.10294324f;

// The ops, v * s, and what their derivatives take: *sigmoid is s, *rest 1 - s.
template <typename T>
struct Math {
  // square: v^2.
  static OPDOCK_DEVICE float gelu_tanh(float v, float square, float* sigmoid, float* rest) {
    const float w = v * opdock::fma(-kPower3, square, -kPower1);
    *sigmoid = rcp(1.0f + opdock::exp2(w));
    *rest = 1.0f - *sigmoid;
    return v * *sigmoid;
  }
  static OPDOCK_DEVICE float silu(float x, float* sigmoid) {
    *sigmoid = rcp(1.0f + opdock::exp2(-kLog2E * x));
    return x * *sigmoid;
  }
  // The normal distribution Phi, by the logarithm of its lower half as a polynomial: to 3e-6 and,
  // where it is small, to 6e-5 of it or to 4e-8.
  static OPDOCK_DEVICE float normal(float x) {
    const float a = opdock::min(opdock::abs(x), 13.0f);  // beyond, Phi(-a) is 0
    float power = opdock::fma(-0.00043749297f, a, 0.00687176082f);
    power = opdock::fma(power, a, -0.051468987f);
    power = opdock::fma(power, a, -0.460101664f);
    power = opdock::fma(power, a, -1.15088189f);
    power = opdock::fma(power, a, -1.00000787f);
    return opdock::abs((x < 0.0f ? 0.0f : 1.0f) - opdock::exp2(power));
  }
  static OPDOCK_DEVICE float gelu(float x) { return x * normal(x); }
  // Phi(x) and *density: Phi'(x).
  static OPDOCK_DEVICE float normal(float x, float* density) {
    *density = opdock::exp2(x * (x * (-0.5f * kLog2E))) * kDensity;
    return normal(x);
  }
};

// As exact as PyTorch's, also where the result is next to half of x.
template <>
struct Math<float> {
  static OPDOCK_DEVICE float gelu_tanh(float v, float square, float* sigmoid, float* rest) {
    const float w = opdock::abs(v) * opdock::fma(-kPower3, square, -kPower1);
    const float e = opdock::exp2(w), above = 1.0f - e, below = 1.0f + e;
    // tanh(|w| / 2) is above / below; what the roundings have lost comes in again.
    const float r = rcp(below), q = above * r, lost = e - (below - 1.0f);
    const float t = opdock::fma(opdock::fma(-q, lost, opdock::fma(-q, below, above)), r, q);
    const float half = 0.5f * v, tanh = v < 0.0f ? -t : t;
    // Of the two that are 1 together the smaller one is exact.
    const bool far = e < 0.25f;
    *sigmoid = far && v < 0.0f ? e * r : opdock::fma(0.5f, tanh, 0.5f);
    *rest = far && !(v < 0.0f) ? e * r : opdock::fma(-0.5f, tanh, 0.5f);
    return opdock::fma(half, tanh, half);
  }
  static OPDOCK_DEVICE float silu(float x, float* sigmoid) {
    const float e = opdock::exp2(-kLog2E * x), below = 1.0f + e, r = rcp(below), y = x * r;
    *sigmoid = r;
    // What the roundings of the sum and of the quotient have lost; beyond, both may be infinite.
    if (!(opdock::abs(x) < 80.0f)) return y;
    const float lost = e - (below - 1.0f);
    *sigmoid = opdock::fma(r, opdock::fma(-r, below, 1.0f), r);
    return opdock::fma(opdock::fma(-y, lost, opdock::fma(-y, below, x)), r, y);
  }
  static OPDOCK_DEVICE float gelu(float x) {
    const float half = 0.5f * x;
    return opdock::fma(half, opdock::erf(x * 0.707106781f), half);
  }
  static OPDOCK_DEVICE float normal(float x, float* density) {
    *density = opdock::exp2(x * (x * (-0.5f * kLog2E))) * kDensity;
    return opdock::fma(0.5f, opdock::erf(x * 0.707106781f), 0.5f);
  }
};

// Each x becomes act(x).
template <typename T, int Size>
OPDOCK_DEVICE void activate(int act, float (&x)[Size]) {
  float sigmoid, rest;
  // The same for all threads. No switch: it becomes a jump through a table, which is slower.
  if (act == kGeluTanh) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) x[k] = Math<T>::gelu_tanh(x[k], x[k] * x[k], &sigmoid, &rest);
  } else if (act == kGeluErf) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) x[k] = Math<T>::gelu(x[k]);
  } else if (act == kSilu) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) x[k] = Math<T>::silu(x[k], &sigmoid);
  } else if (act == kRelu) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) x[k] = max_or_nan(x[k], 0.0f);
  }
}

// silu, and its derivative times grad.
template <typename T>
OPDOCK_DEVICE void differentiate_silu(float* x, float* grad) {
  float s;
  *x = Math<T>::silu(*x, &s);
  *grad *= opdock::fma(*x, 1.0f - s, s);
}

// tanh gelu, and its derivative times grad.
template <typename T>
OPDOCK_DEVICE void differentiate_gelu_tanh(float* x, float* grad) {
  // Beyond, the sigmoid is 0 or 1; the square must not become infinite.
  const float square = opdock::min(*x * *x, 1e3f);
  float s, rest;
  *x = Math<T>::gelu_tanh(*x, square, &s, &rest);
  const float slope = opdock::fma(kSlope3, square, kSlope1);
  if constexpr (sizeof(T) < sizeof(float)) {
    *grad *= opdock::fma(*x * rest, slope, s);
  } else {  // in which less is rounded: the derivative may be above 1
    *grad = opdock::fma(*grad, opdock::fma(*x * rest, slope, s - 0.5f), 0.5f * *grad);
  }
}

// Each grad, of act(x), becomes that of x; each x becomes act(x).
template <typename T, int Size>
OPDOCK_DEVICE void differentiate(int act, float (&x)[Size], float (&grad)[Size]) {
  // No switch, as above.
  if (act == kGeluTanh) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) differentiate_gelu_tanh<T>(&x[k], &grad[k]);
  } else if (act == kGeluErf) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) {
      float density;
      const float below = Math<T>::normal(x[k], &density);
      grad[k] *= opdock::fma(x[k], density, below);
      x[k] *= below;
    }
  } else if (act == kSilu) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) differentiate_silu<T>(&x[k], &grad[k]);
  } else if (act == kRelu) {
    OPDOCK_UNROLL
    for (int k = 0; k < Size; ++k) {
      if (x[k] <= 0.0f) grad[k] = 0.0f;
      x[k] = x[k] < 0.0f ? 0.0f : x[k];
    }
  }
}

}  // namespace activation
