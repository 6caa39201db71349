// The arithmetic of fake_quantize_, for its kernel and for the CPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/philox.cuh"
#include "quantizer_params.cuh"

namespace quantizer {

struct FakeParams {
  void* x;
  Target to;  // only the groups and their format; `aligned` is x's, to 16 bytes
  int stochastic;
  opdock::RandomSource random;
};

// The integer of a number is x * factor rounded or, in an asymmetric group, (x - least) / step.
struct FakeScale {
  float factor, least, step;
};

OPDOCK_HOST_DEVICE FakeScale make_fake_scale(const Format& format, float least, float most) {
  const float levels = format.bits == 8 ? 256.0f : 16.0f;
  if (!(least <= most)) least = most = 0.0f;
  const float reach = most > -least ? most : -least;
  return {levels / (2.0f * reach + 1e-5f), least, (most - least + 1e-5f) / levels};
}

// Returns the nearest integer, ties to even. A larger number than 2^22 stays as it is.
OPDOCK_HOST_DEVICE float nearest(float y) {
  constexpr float kShift = 12582912.0f;
  return y > -4194304.0f && y < 4194304.0f ? (y + kShift) - kShift : y;
}

// Returns an integer beside y: the one towards 0, or the other one with a probability of the
// fraction. drawn: a random number of 32 bits.
OPDOCK_HOST_DEVICE float stochastic(float y, unsigned int drawn) {
  if (!(y > -4194304.0f && y < 4194304.0f)) return y;
  const float towards = static_cast<float>(static_cast<int>(y));
  const float fraction = y < 0.0f ? towards - y : y - towards;
  const float threshold = static_cast<float>(drawn >> 8) * 5.9604644775390625e-8f;  // 2^-24
  return threshold < fraction ? towards + (y < 0.0f ? -1.0f : 1.0f) : towards;
}

// Returns the integer of a number, not limited if it is not symmetric.
OPDOCK_HOST_DEVICE float fake_integer(const Format& format, const FakeScale& scale, float x,
                                      bool is_stochastic, unsigned int drawn) {
  const float y = format.is_symmetric ? x * scale.factor : (x - scale.least) / scale.step;
  const float rounded = is_stochastic ? stochastic(y, drawn) : nearest(y);
  const float most = format.bits == 8 ? 127.0f : 7.0f;
  if (!format.is_symmetric) return rounded;
  return rounded > most ? most : rounded < -most - 1.0f ? -most - 1.0f : rounded;
}

}  // namespace quantizer
