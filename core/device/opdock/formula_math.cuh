// The operations of formulas (docs/reference/formulas.md) on one element, under their names there.
// float16 and bfloat16 are computed as float, integers of less than 32 bits as int32_t. Floats are
// as accurate as the target's own library, which PyTorch uses too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/activation_math.cuh"
#include "opdock/target.cuh"

namespace opdock::formula {

// NAME(x) of float and of double by the target's functions NAMEf and NAME.
#if defined(OPDOCK_SOFT)
#define OPDOCK_FORMULA_CALL(name, type, arguments) __builtin_##name arguments
#else
#define OPDOCK_FORMULA_CALL(name, type, arguments) ::name arguments
#endif
#define OPDOCK_FORMULA_1(name)                       \
  OPDOCK_DEVICE float name(float x) {                \
    return OPDOCK_FORMULA_CALL(name##f, float, (x)); \
  }                                                  \
  OPDOCK_DEVICE double name(double x) {              \
    return OPDOCK_FORMULA_CALL(name, double, (x));   \
  }
#define OPDOCK_FORMULA_2(name)                          \
  OPDOCK_DEVICE float name(float a, float b) {          \
    return OPDOCK_FORMULA_CALL(name##f, float, (a, b)); \
  }                                                     \
  OPDOCK_DEVICE double name(double a, double b) {       \
    return OPDOCK_FORMULA_CALL(name, double, (a, b));   \
  }
OPDOCK_FORMULA_1(floor)
OPDOCK_FORMULA_1(ceil)
OPDOCK_FORMULA_1(trunc)
OPDOCK_FORMULA_1(rint)
OPDOCK_FORMULA_1(sqrt)
OPDOCK_FORMULA_1(exp)
OPDOCK_FORMULA_1(exp2)
OPDOCK_FORMULA_1(expm1)
OPDOCK_FORMULA_1(log)
OPDOCK_FORMULA_1(log2)
OPDOCK_FORMULA_1(log10)
OPDOCK_FORMULA_1(log1p)
OPDOCK_FORMULA_1(sin)
OPDOCK_FORMULA_1(cos)
OPDOCK_FORMULA_1(tan)
OPDOCK_FORMULA_1(asin)
OPDOCK_FORMULA_1(acos)
OPDOCK_FORMULA_1(atan)
OPDOCK_FORMULA_1(sinh)
OPDOCK_FORMULA_1(cosh)
OPDOCK_FORMULA_1(tanh)
OPDOCK_FORMULA_1(asinh)
OPDOCK_FORMULA_1(acosh)
OPDOCK_FORMULA_1(atanh)
OPDOCK_FORMULA_1(erf)
OPDOCK_FORMULA_1(erfc)
OPDOCK_FORMULA_1(fabs)
OPDOCK_FORMULA_2(atan2)
OPDOCK_FORMULA_2(hypot)
OPDOCK_FORMULA_2(fmod)
OPDOCK_FORMULA_2(copysign)
OPDOCK_FORMULA_2(pow)
#undef OPDOCK_FORMULA_1
#undef OPDOCK_FORMULA_2
OPDOCK_DEVICE float fma(float a, float b, float c) {
  return OPDOCK_FORMULA_CALL(fmaf, float, (a, b, c));
}
OPDOCK_DEVICE double fma(double a, double b, double c) {
  return OPDOCK_FORMULA_CALL(fma, double, (a, b, c));
}
#undef OPDOCK_FORMULA_CALL

// Converts a float to an integer. One that the type does not hold becomes the nearest number that
// it does hold, and NaN becomes 0, as most instructions of GPUs do it; C++ leaves it open. That is
// no fault of the caller's: the elements behind a row's end, which are never stored, may be NaN.
template <class T, class Float>
OPDOCK_DEVICE T to_integer(Float x) {
  // To 64 bits an H200 converts NaN to the smallest number.
  if (sizeof(T) == 8 && x != x) return T(0);
#if defined(OPDOCK_SOFT)
  constexpr T kMost = static_cast<T>((uint64_t{1} << (8 * sizeof(T) - 1)) - 1);
  const Float beyond = static_cast<Float>(uint64_t{1} << (8 * sizeof(T) - 1));
  if (x != x) return T(0);
  if (x >= beyond) return kMost;
  if (x < -beyond) return -kMost - 1;
#endif
  return static_cast<T>(x);
}

// Half to even.
template <class T>
OPDOCK_DEVICE T round(T x) {
  return rint(x);
}
OPDOCK_DEVICE float abs(float x) {
  return fabs(x);
}
OPDOCK_DEVICE double abs(double x) {
  return fabs(x);
}
OPDOCK_DEVICE float rsqrt(float x) {
  return 1.0f / sqrt(x);
}
OPDOCK_DEVICE double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
template <class T>
OPDOCK_DEVICE T reciprocal(T x) {
  return T(1) / x;
}
template <class T>
OPDOCK_DEVICE T sign(T x) {
  return static_cast<T>((x > T(0)) - (x < T(0)));
}
template <class T>
OPDOCK_DEVICE T relu(T x) {
  return x <= T(0) ? T(0) : x;
}
template <class T>
OPDOCK_DEVICE bool isnan(T x) {
  return x != x;
}
template <class T>
OPDOCK_DEVICE bool isfinite(T x) {
  return x - x == T(0);
}
template <class T>
OPDOCK_DEVICE bool isinf(T x) {
  return x == x && !isfinite(x);
}
OPDOCK_DEVICE bool signbit(float x) {
  return copysign(1.0f, x) < 0.0f;
}
OPDOCK_DEVICE bool signbit(double x) {
  return copysign(1.0, x) < 0.0;
}
template <class T>
OPDOCK_DEVICE bool signbit(T x) {
  return x < T(0);
}
// NaN if one of the two is.
template <class T>
OPDOCK_DEVICE T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
OPDOCK_DEVICE float maximum(float a, float b) {
  return max_or_nan(a, b);
}
template <class T>
OPDOCK_DEVICE T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
OPDOCK_DEVICE float minimum(float a, float b) {
  return -max_or_nan(-a, -b);
}
template <class T>
OPDOCK_DEVICE T clamp_min(T a, T b) {
  return maximum(a, b);
}
template <class T>
OPDOCK_DEVICE T clamp_max(T a, T b) {
  return minimum(a, b);
}

// Where exp(-x) would be infinite the result is not 0 but subnormal.
template <class T>
OPDOCK_DEVICE T sigmoid(T x) {
  const T power = exp(-abs(x));
  return (x < T(0) ? power : T(1)) / (T(1) + power);
}
template <class T>
OPDOCK_DEVICE T silu(T x) {
  return x * sigmoid(x);
}
template <class T>
OPDOCK_DEVICE T softplus(T x) {
  return x > T(20) ? x : log1p(exp(x));
}
template <class T>
OPDOCK_DEVICE T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}
template <class T>
OPDOCK_DEVICE T gelu_tanh(T x) {
  const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + tanh(inner));
}
// The functions of floats are as exact as PyTorch's. Results have the sign of x, 0 too. Where x is
// far below 0, silu's power is computed more exactly.
OPDOCK_DEVICE float silu(float x) {
  float s;
  if (!(x > -4.0f && x < 80.0f)) return x * sigmoid(x);
  return copysign(ActivationMath<float>::silu(x, &s), x);
}
OPDOCK_DEVICE float gelu(float x) {
  return copysign(ActivationMath<float>::gelu(x), x);
}
OPDOCK_DEVICE float gelu_tanh(float x) {
  float s, rest;
  return copysign(ActivationMath<float>::gelu_tanh(x, x * x, &s, &rest), x);
}
template <class T>
OPDOCK_DEVICE T logaddexp(T a, T b) {
  if (a == b && !isfinite(a)) return a;
  const T most = maximum(a, b);
  return most + log1p(exp(-abs(a - b)));
}

// For results of 16 bits: errors are below 1e-5, as those of ActivationMath, which has their forms.
namespace quick {

OPDOCK_DEVICE float exp(float x) {
  return opdock::exp2(x * ActivationNumbers::kLog2E);
}
OPDOCK_DEVICE float sigmoid(float x) {
  return rcp(1.0f + exp(-x));
}
OPDOCK_DEVICE float silu(float x) {
  return x * sigmoid(x);
}
OPDOCK_DEVICE float gelu(float x) {
  return copysign(ActivationMath<half>::gelu(x), x);
}
OPDOCK_DEVICE float gelu_tanh(float x) {
  float s, rest;
  return ActivationMath<half>::gelu_tanh(x, x * x, &s, &rest);
}
OPDOCK_DEVICE float div(float a, float b) {
#if defined(OPDOCK_SOFT) || OPDOCK_HIP
  return a / b;
#else
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
#endif
}
OPDOCK_DEVICE float reciprocal(float x) {
  return div(1.0f, x);
}
OPDOCK_DEVICE float sqrt(float x) {
#if defined(OPDOCK_SOFT) || OPDOCK_HIP
  return formula::sqrt(x);
#else
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
#endif
}
OPDOCK_DEVICE float rsqrt(float x) {
#if defined(OPDOCK_SOFT) || OPDOCK_HIP
  return formula::rsqrt(x);
#else
  float root;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
#endif
}

}  // namespace quick

// The remainder has the sign of b, as in Python.
template <class T>
OPDOCK_DEVICE T remainder_of_floats(T a, T b) {
  const T rest = fmod(a, b);
  return rest != T(0) && (b < T(0)) != (rest < T(0)) ? rest + b : rest;
}
template <class T>
OPDOCK_DEVICE T floor_divide_floats(T a, T b) {
  if (b == T(0)) return a / b;
  const T rest = fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != T(0) && (b < T(0)) != (rest < T(0))) quotient -= T(1);
  if (quotient == T(0)) return copysign(T(0), a / b);
  const T whole = floor(quotient);
  return quotient - whole > T(0.5) ? whole + T(1) : whole;
}
OPDOCK_DEVICE float remainder(float a, float b) {
  return remainder_of_floats(a, b);
}
OPDOCK_DEVICE double remainder(double a, double b) {
  return remainder_of_floats(a, b);
}
OPDOCK_DEVICE float floor_divide(float a, float b) {
  return floor_divide_floats(a, b);
}
OPDOCK_DEVICE double floor_divide(double a, double b) {
  return floor_divide_floats(a, b);
}

template <class T>
OPDOCK_DEVICE T add(T a, T b) {
  return a + b;
}
template <class T>
OPDOCK_DEVICE T sub(T a, T b) {
  return a - b;
}
template <class T>
OPDOCK_DEVICE T mul(T a, T b) {
  return a * b;
}
template <class T>
OPDOCK_DEVICE T neg(T a) {
  return -a;
}

// Integers wrap, which in C++ only unsigned ones do. A division by 0 gives 0.
template <class T>
struct UnsignedOf;
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};
#define OPDOCK_FORMULA_INTEGERS(T)                                                  \
  OPDOCK_DEVICE T add(T a, T b) {                                                   \
    using U = UnsignedOf<T>::type;                                                  \
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));                   \
  }                                                                                 \
  OPDOCK_DEVICE T sub(T a, T b) {                                                   \
    using U = UnsignedOf<T>::type;                                                  \
    return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));                   \
  }                                                                                 \
  OPDOCK_DEVICE T mul(T a, T b) {                                                   \
    using U = UnsignedOf<T>::type;                                                  \
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));                   \
  }                                                                                 \
  OPDOCK_DEVICE T neg(T a) {                                                        \
    return sub(T(0), a);                                                            \
  }                                                                                 \
  OPDOCK_DEVICE T abs(T a) {                                                        \
    return a < 0 ? neg(a) : a;                                                      \
  }                                                                                 \
  OPDOCK_DEVICE T fmod(T a, T b) {                                                  \
    return b == 0 || b == -1 ? T(0) : a % b;                                        \
  }                                                                                 \
  OPDOCK_DEVICE T remainder(T a, T b) {                                             \
    const T rest = fmod(a, b);                                                      \
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;                    \
  }                                                                                 \
  OPDOCK_DEVICE T floor_divide(T a, T b) {                                          \
    if (b == 0) return T(0);                                                        \
    if (b == -1) return neg(a);                                                     \
    return a / b - (a % b != 0 && (b < 0) != (a < 0) ? T(1) : T(0));                \
  }                                                                                 \
  OPDOCK_DEVICE T pow(T a, T b) {                                                   \
    if (b < 0) return a == 1 ? T(1) : a == -1 ? (b % 2 == 0 ? T(1) : T(-1)) : T(0); \
    T power = 1;                                                                    \
    for (; b != 0; b /= 2) {                                                        \
      if (b % 2 != 0) power = mul(power, a);                                        \
      a = mul(a, a);                                                                \
    }                                                                               \
    return power;                                                                   \
  }
OPDOCK_FORMULA_INTEGERS(int32_t)
OPDOCK_FORMULA_INTEGERS(int64_t)
#undef OPDOCK_FORMULA_INTEGERS
// Bits: of the operands' type. A count below 0, or of all bits and more, shifts all bits out.
template <int Bits, class T>
OPDOCK_DEVICE T shift_left(T a, T count) {
  using U = typename UnsignedOf<T>::type;
  return count < 0 || count >= Bits ? T(0) : static_cast<T>(static_cast<U>(a) << count);
}
template <int Bits, class T>
OPDOCK_DEVICE T shift_right(T a, T count) {
  // T may have more bits than the operands: of a uint8_t nothing remains, of an int8_t the sign.
  return a >> (count < 0 || count >= Bits ? T(8 * sizeof(T) - 1) : count);
}

}  // namespace opdock::formula
