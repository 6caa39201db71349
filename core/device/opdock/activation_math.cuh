// Activations of one element, in float. float's are as accurate as PyTorch's; those of 16-bit
// elements take some 10 instructions, and are exact to 1e-5 before they are rounded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"

namespace opdock {

struct ActivationNumbers {
  static constexpr float kLog2E = 1.44269504f;
  static constexpr float kDensity = 0.398942280f;  // of the normal distribution at 0: 1/sqrt(2 pi)
  // tanh gelu is v * sigmoid(w); w is v * (a + b * v^2), twice what tanh is taken of, with
  // a = 2 sqrt(2 / pi) and b = 0.044715 a. For powers of 2, log2(e) times these.
  static constexpr float kPower1 = 2.3022082f, kPower3 = 0.10294324f;
};

// The ops, v * s, and what their derivatives take: *sigmoid is s, *rest 1 - s.
template <typename T>
struct ActivationMath : ActivationNumbers {
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
struct ActivationMath<float> : ActivationNumbers {
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

}  // namespace opdock
