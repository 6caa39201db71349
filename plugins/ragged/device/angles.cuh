// The cosine and the sine of a float, to about 1e-7, for angles up to 6 million.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"

namespace ragged {

// Subtracts the nearest multiple of pi / 2, which three floats give to 75 bits, so that nothing is
// lost for the angles of late positions; then evaluates polynomials on [-pi / 4, pi / 4].
OPDOCK_DEVICE void cosine_and_sine(float angle, float* cosine, float* sine) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the last bits.
  const float shifted = opdock::fma(angle, 0.636619772f, 12582912.0f);
  const float turns = shifted - 12582912.0f;
  float rest = opdock::fma(-turns, 1.57079637f, angle);
  rest = opdock::fma(-turns, -4.37113883e-8f, rest);
  rest = opdock::fma(-turns, -1.71512489e-15f, rest);
  const float square = rest * rest;
  float c = opdock::fma(square, 2.44331571e-5f, -1.38873162e-3f);
  c = opdock::fma(c, square, 4.16666456e-2f);
  c = opdock::fma(c, square, -0.5f);
  c = opdock::fma(c, square, 1.0f);
  float s = opdock::fma(square, -1.95152959e-4f, 8.33216087e-3f);
  s = opdock::fma(s, square, -1.66666546e-1f);
  s = opdock::fma(s * square, rest, rest);
  const opdock::uint32_t quadrant = opdock::float_bits(shifted);
  const float a = (quadrant & 1u) != 0 ? s : c, b = (quadrant & 1u) != 0 ? c : s;
  *cosine = ((quadrant + 1u) & 2u) != 0 ? -a : a;
  *sine = (quadrant & 2u) != 0 ? -b : b;
}

}  // namespace ragged
