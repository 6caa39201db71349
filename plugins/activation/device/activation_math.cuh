// The activations of a vector's elements, selected by number, and their derivatives. All arithmetic
// is in float.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_params.cuh"
#include "opdock/activation_math.cuh"
#include "opdock/device.cuh"

namespace activation {

using namespace opdock;

template <typename T>
using Math = ActivationMath<T>;

// tanh gelu is v * sigmoid(w); the derivative of w, v * (a + b * v^2), is a + 3 b * v^2.
inline constexpr float kSlope1 = 1.59576912f, kSlope3 = 0.214064449f;

// Replaces each x by act(x).
template <typename T, int Size>
OPDOCK_DEVICE void activate(int act, float (&x)[Size]) {
  float sigmoid, rest;
  // The branch is the same for all threads. A switch would become a jump through a table, which is
  // slower.
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

// Computes silu, and its derivative times grad.
template <typename T>
OPDOCK_DEVICE void differentiate_silu(float* x, float* grad) {
  float s;
  *x = Math<T>::silu(*x, &s);
  *grad *= opdock::fma(*x, 1.0f - s, s);
}

// Computes tanh gelu, and its derivative times grad.
template <typename T>
OPDOCK_DEVICE void differentiate_gelu_tanh(float* x, float* grad) {
  // For larger x, the sigmoid is 0 or 1; the square must not become infinite.
  const float square = opdock::min(*x * *x, 1e3f);
  float s, rest;
  *x = Math<T>::gelu_tanh(*x, square, &s, &rest);
  const float slope = opdock::fma(kSlope3, square, kSlope1);
  if constexpr (sizeof(T) < sizeof(float)) {
    *grad *= opdock::fma(*x * rest, slope, s);
  } else {  // this form rounds less: the derivative may be above 1
    *grad = opdock::fma(*grad, opdock::fma(*x * rest, slope, s - 0.5f), 0.5f * *grad);
  }
}

// Turns each grad, the gradient of act(x), into that of x, and each x into act(x).
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
