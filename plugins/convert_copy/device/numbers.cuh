// Conversion of floating-point numbers to integers, shared by the GPU and the CPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace convert_copy {

template <class T>
inline constexpr bool is_floating = false;
template <>
inline constexpr bool is_floating<float> = true;
template <>
inline constexpr bool is_floating<double> = true;

template <class T>
struct Range {
  static constexpr bool kIsSigned = T(-1) < T(0);
  static constexpr T kMax = kIsSigned ? T((1ull << (8 * sizeof(T) - 1)) - 1) : T(-1);
  static constexpr T kMin = kIsSigned ? T(-kMax - 1) : T(0);
};

// Returns the whole part; outside the type's range its smallest or largest number; for a NaN 0. It
// has no branches, so that CPU compilers vectorise it.
template <class T, class F>
OPDOCK_HOST_DEVICE T whole_part(F value) {
  constexpr F kLow = static_cast<F>(Range<T>::kMin);
  constexpr F kEnd = static_cast<F>(Range<T>::kMax / 2 + 1) * 2;
  F within = value == value ? value : F(0);
  within = within > kLow ? within : kLow;
  const bool is_beyond = within >= kEnd;
  const T whole = static_cast<T>(is_beyond ? F(0) : within);
  return is_beyond ? Range<T>::kMax : whole;
}

}  // namespace convert_copy
