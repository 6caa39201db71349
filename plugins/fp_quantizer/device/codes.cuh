// The codes of small floating-point numbers, and how a float becomes one and back. Kernels and host
// code include this file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace fp_quantizer {

// A code has a sign, an exponent and a mantissa, from the highest bit to the lowest. All exponents
// are numbers: there are no infinities, no NaNs, no subnormal numbers and no zero. The code with
// all bits 0 is 2^-bias, with bias = 2^(exponent bits - 1) - 1.
//
// Without its sign, a code is the top bits of a float (exponent and leading mantissa bits) minus
// those of 2^-bias, so that both directions are an addition and a shift.
struct Codes {
  int shift;    // mantissa bits of a float that a code does not have
  int least;    // top bits of 2^-bias
  int most;     // the largest code without its sign: all bits are 1
  float range;  // the number that it stands for
};

// Returns the code, without its sign, of the number whose magnitude has these bits as a float. The
// number is rounded by what the addend adds to the bits that are dropped: half_of() rounds to
// nearest, ties away from zero. Numbers that are too large, and NaN, give the largest code.
OPDOCK_HOST_DEVICE unsigned int encode(const Codes& codes, unsigned int magnitude,
                                       unsigned int addend) {
  const int code = static_cast<int>((magnitude + addend) >> codes.shift) - codes.least;
  return static_cast<unsigned int>(code < 0 ? 0 : code > codes.most ? codes.most : code);
}
OPDOCK_HOST_DEVICE unsigned int half_of(const Codes& codes) {
  return 1u << (codes.shift - 1);
}
// Returns a random addend: the number is rounded away from zero with the probability that the
// dropped bits are of a step.
OPDOCK_HOST_DEVICE unsigned int random_of(const Codes& codes, unsigned int random) {
  return random & ((1u << codes.shift) - 1);
}

// Returns the bits of the float that a code of `bits` bits stands for; exact.
OPDOCK_HOST_DEVICE unsigned int decode(const Codes& codes, unsigned int code, int bits) {
  const unsigned int rest = code & static_cast<unsigned int>(codes.most);
  const unsigned int sign = code >> (bits - 1) & 1u;
  return (rest + static_cast<unsigned int>(codes.least)) << codes.shift | sign << 31;
}

// The factors of a group whose largest magnitude is `largest`. Elements are multiplied by `before`,
// which is exact, and then by `factor`: together range / largest, also where that is more than a
// float holds.
struct Factors {
  float before;
  float factor;
  float scale;  // what decoded numbers are multiplied by
};
OPDOCK_HOST_DEVICE Factors factors_of(const Codes& codes, float largest) {
  Factors factors = {};
  factors.before = largest < 0x1p-80f ? 0x1p64f : 1.0f;
  const float raised = largest * factors.before;
  factors.factor = raised == 0.0f ? 0.0f : codes.range / raised;
  factors.scale = largest / codes.range;
  return factors;
}

}  // namespace fp_quantizer
