// activation_simd.h takes from here the limits of its ways, and polynomials that are less exact
// than those of opdock/activation_polynomials.hpp. T is the type that elements have in memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/activation_polynomials.hpp>

namespace activation {

// rough_exp2: 2^r for r from -1/2 to 1/2.
//
// Normal: NormalPolynomials; from a = end on, Phi(-a) is 0. Elements of 16 bits have no border:
// `far` serves all numbers.
//
// Sigmoid: TanhPolynomial. From `end` on e^w is infinite; `large` is any finite number.
template <class T>
struct Tables {  // errors for 16 bits: 3e-6; 7e-6 and, from a = 3.5 on, 2.4e-4
  static constexpr float rough_exp2[] = {0.999999285f, 0.693121791f, 0.240247443f, 0.0559179448f,
                                         0.00957013015f};
  struct Normal {
    static constexpr float scale = 0.36f, shift = 1.0f, slope = 1.0f, start = 0.0f, end = 13.0f;
    static constexpr float far[] = {0.284485161f, 0.321138412f, 0.0986107662f, 0.485666543f,
                                    -0.189907804f};
  };
  struct Sigmoid {
    static constexpr float end = 86.0f, large = 1e30f;
  };
};

template <>
struct Tables<float> {  // 7e-8
  static constexpr float rough_exp2[] = {1.00000012f,   0.693146944f,   0.240221202f,
                                         0.0555071346f, 0.00967554934f, 0.00132764946f};
  struct Normal : opdock::NormalPolynomials<float> {
    static constexpr float end = 13.0f;
  };
  struct Sigmoid : opdock::TanhPolynomial<float> {
    static constexpr float end = 88.75f, large = 1e30f;
  };
};

template <>
struct Tables<double> {
  struct Normal : opdock::NormalPolynomials<double> {
    static constexpr double end = 38.6;
  };
  struct Sigmoid : opdock::TanhPolynomial<double> {
    static constexpr double end = 720.0, large = 1e300;
  };
};

}  // namespace activation
