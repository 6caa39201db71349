// opdock/activation_polynomials.hpp: polynomials for powers of 2, the normal distribution and tanh,
// from Chebyshev nodes or with the least maximum error. The CPU code of formulas and plugins'
// activations use them, each in its own way.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ACTIVATION_POLYNOMIALS_HPP_
#define OPDOCK_ACTIVATION_POLYNOMIALS_HPP_

namespace opdock {

// 2^r for r from -1/2 to 1/2, with a relative error of 3e-9.
inline constexpr float kExp2Polynomial[] = {1.0f,           0.693147182f,   0.240226462f,
                                            0.0555032864f,  0.00961848907f, 0.00133999379f,
                                            0.000153458284f};

// The normal distribution Phi. Up to |x| = border it is 1/2 + x N(x^2), where N is `near`. Beyond
// that, Phi(-a) is e^(-a^2/2) / 2 r P(w), with r = 1 / (scale a + shift), w = slope r + start and
// P = `far`.
template <class T>
struct NormalPolynomials;
template <>
struct NormalPolynomials<float> {  // errors: 1e-8, 1.8e-7
  static constexpr float border = 1.25f, scale = 1.0f, shift = 3.0f, slope = 11.2264147f,
                         start = -1.64150941f;
  static constexpr float near[] = {0.398942292f,    -0.066490218f,   0.00997232273f,
                                   -0.00118390762f, 0.000111092028f, -6.8223967e-06f};
  static constexpr float far[] = {1.33993375f, 0.486458302f,     0.121004775f,
                                  0.01563753f, -0.000983834966f, -0.000588168506f};
};
template <>
struct NormalPolynomials<double> {  // errors: 4e-17
  static constexpr double border = 1.5, scale = 1.0, shift = 4.0, slope = 12.626344086021506,
                          start = -1.2956989247311828;
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

// tanh(w / 2) is w T(w^2) up to |w| = border, with T `near`. Errors: 4e-9, of doubles 4e-17.
template <class T>
struct TanhPolynomial;
template <>
struct TanhPolynomial<float> {
  static constexpr float border = 1.25f;
  static constexpr float near[] = {
      0.5f, -0.0416665748f, 0.00416597305f, -0.000419688353f, 4.0211311e-05f, -2.76227297e-06f};
};
template <>
struct TanhPolynomial<double> {
  static constexpr double border = 1.25;
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

}  // namespace opdock
#endif  // OPDOCK_ACTIVATION_POLYNOMIALS_HPP_
