// Activations of one element, computed in float. Those of float elements are as accurate as
// PyTorch's. Those of 16-bit elements take about 10 instructions, and have an error of at most 1e-5
// before they are rounded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"

namespace opdock {

struct ActivationNumbers {
  static constexpr float kLog2E = 1.44269504f;
  static constexpr float kDensity = 0.398942280f;  // of the normal distribution at 0: 1/sqrt(2 pi)
  // The tanh approximation of GELU is v * sigmoid(w), where w is v * (a + b * v^2), twice the
  // argument of tanh, with a = 2 sqrt(2 / pi) and b = 0.044715 a. The constants are a and b times
  // log2(e), for powers of 2.
  static constexpr float kPower1 = 2.3022082f, kPower3 = 0.10294324f;
};

// The activations, v * s, and what their derivatives need: *sigmoid is set to s, *rest to 1 - s.
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
  // The normal distribution function Phi, by a polynomial for the logarithm of its lower half. Its
  // error is at most 3e-6 and, where Phi is small, at most 6e-5 of it or 4e-8.
  static OPDOCK_DEVICE float normal(float x) {
    const float a = opdock::min(opdock::abs(x), 13.0f);  // for larger a, Phi(-a) is 0
    float power = opdock::fma(-0.00043749297f, a, 0.00687176082f);
    power = opdock::fma(power, a, -0.051468987f);
    power = opdock::fma(power, a, -0.460101664f);
    power = opdock::fma(power, a, -1.15088189f);
    power = opdock::fma(power, a, -1.00000787f);
    return opdock::abs((x < 0.0f ? 0.0f : 1.0f) - opdock::exp2(power));
  }
  static OPDOCK_DEVICE float gelu(float x) { return x * normal(x); }
  // Returns Phi(x) and sets *density to Phi'(x).
  static OPDOCK_DEVICE float normal(float x, float* density) {
    *density = opdock::exp2(x * (x * (-0.5f * kLog2E))) * kDensity;
    return normal(x);
  }
};

// For float elements: as accurate as PyTorch's, even where the result is close to half of x.
template <>
struct ActivationMath<float> : ActivationNumbers {
  static OPDOCK_DEVICE float gelu_tanh(float v, float square, float* sigmoid, float* rest) {
    const float w = opdock::abs(v) * opdock::fma(-kPower3, square, -kPower1);
    const float e = opdock::exp2(w), above = 1.0f - e, below = 1.0f + e;
    // tanh(|w| / 2) is above / below. The correction adds what rounding lost in `below` and in the
    // quotient.
    const float r = rcp(below), q = above * r, lost = e - (below - 1.0f);
    const float t = opdock::fma(opdock::fma(-q, lost, opdock::fma(-q, below, above)), r, q);
    const float half = 0.5f * v, tanh = v < 0.0f ? -t : t;
    // *sigmoid and *rest add up to 1. The smaller one is computed without that subtraction, so that
    // it keeps its digits.
    const bool far = e < 0.25f;
    *sigmoid = far && v < 0.0f ? e * r : opdock::fma(0.5f, tanh, 0.5f);
    *rest = far && !(v < 0.0f) ? e * r : opdock::fma(-0.5f, tanh, 0.5f);
    return opdock::fma(half, tanh, half);
  }
  static OPDOCK_DEVICE float silu(float x, float* sigmoid) {
    const float e = opdock::exp2(-kLog2E * x), below = 1.0f + e, r = rcp(below), y = x * r;
    *sigmoid = r;
    // Below, the correction adds what rounding lost in the sum and in the quotient. For larger |x|
    // both may be infinite.
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
