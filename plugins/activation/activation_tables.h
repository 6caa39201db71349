// Polynomials of activation_simd.h, from Chebyshev nodes or with the least maximum error. T is the
// type that elements have in memory; a comment on each table gives its errors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace activation {

// exp2, rough_exp2: 2^r for r from -1/2 to 1/2.
//
// Normal: the normal distribution Phi. Up to |x| = border it is 1/2 + x N(x^2), where N is `near`.
// Beyond that, Phi(-a) is e^(-a^2/2) / 2 r P(w), with r = 1 / (scale a + shift), w = slope r +
// start and P = `far`; from a = end on it is 0.
//
// Sigmoid: up to |w| = border it is 1/2 + w T(w^2) / 2, where w T(w^2), with T `near`, is tanh.
// From `end` on e^w is infinite; `large` is any finite number.
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
struct Tables<float> {  // 2e-9, rough 7e-8; 1e-8 and 1.8e-7; 4e-9
  static constexpr float exp2[] = {1.0f,           0.693147182f,   0.240226462f,   0.0555032864f,
                                   0.00961848907f, 0.00133999379f, 0.000153458284f};
  static constexpr float rough_exp2[] = {1.00000012f,   0.693146944f,   0.240221202f,
                                         0.0555071346f, 0.00967554934f, 0.00132764946f};
  struct Normal {
    static constexpr float border = 1.25f, scale = 1.0f, shift = 3.0f, slope = 11.2264147f,
                           start = -1.64150941f, end = 13.0f;
    static constexpr float near[] = {0.398942292f,    -0.066490218f,   0.00997232273f,
                                     -0.00118390762f, 0.000111092028f, -6.8223967e-06f};
    static constexpr float far[] = {1.33993375f, 0.486458302f,     0.121004775f,
                                    0.01563753f, -0.000983834966f, -0.000588168506f};
  };
  struct Sigmoid {
    static constexpr float border = 1.25f, end = 88.75f, large = 1e30f;
    static constexpr float near[] = {
        0.5f, -0.0416665748f, 0.00416597305f, -0.000419688353f, 4.0211311e-05f, -2.76227297e-06f};
  };
};

template <>
struct Tables<double> {  // 4e-17
  struct Normal {
    static constexpr double border = 1.5, scale = 1.0, shift = 4.0, slope = 12.626344086021506,
                            start = -1.2956989247311828, end = 38.6;
    static constexpr double near[] = {
        0.39894228040143265,     -0.066490380066904151,   0.0099735570100082434,
        -0.0011873282152510792,  0.00011543468662903356,  -9.4446537487193553e-06,
        6.6596529353698072e-07,  -4.1222341421162764e-08, 2.2704268005129701e-09,
        -1.1152970015013659e-10, 4.6549544005906055e-12,  -1.2722382151249488e-13};
    static constexpr double far[] = {
        1.3156842663037802,      0.61567400960874641,     0.23932824475848241,
        0.074282873926342863,    0.016858580731892756,    0.002076298615478752,
        -0.00018436866736330578, -0.0001283404730011097,  -1.0886212879070385e-05,
        5.7935602282846184e-06,  1.2318525225692749e-06,  -2.9240065386357935e-07,
        -9.9987244664539479e-08, 1.9357750259365409e-08,  7.8436660744803797e-09,
        -1.6254222372234872e-09, -5.8781196890724865e-10, 1.1427291810451123e-10,
        3.2554442989972308e-11};
  };
  struct Sigmoid {
    static constexpr double border = 1.25, end = 720.0, large = 1e300;
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
};

}  // namespace activation
