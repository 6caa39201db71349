// Shared parts of the stand-ins for GEMM libraries: element types, by CUDA's numbers, and their
// conversion to double, independent of the tested code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stand_in {

enum Type { kF32 = 0, kF16 = 2, kI8 = 3, kI32 = 10, kBf16 = 14, kE4m3 = 28, kE5m2 = 29 };

[[noreturn]] inline void broken(const char* what) {
  std::fprintf(stderr, "stand-in: %s\n", what);
  std::abort();
}
inline void expect(bool holds, const char* what) {
  if (!holds) broken(what);
}

inline size_t bytes_of(int type) {
  return type == kF32 || type == kI32 ? 4 : type == kF16 || type == kBf16 ? 2 : 1;
}

// Formats with a sign: bits of the exponent and of the fraction.
struct Format {
  int exponent, fraction;
  bool has_infinity;
};
inline Format format_of(int type) {
  if (type == kF16) return {5, 10, true};
  if (type == kBf16) return {8, 7, true};
  return type == kE4m3 ? Format{4, 3, false} : Format{5, 2, true};
}

inline double decode(unsigned bits, const Format& f) {
  const unsigned top = (1u << f.exponent) - 1, fraction = bits & ((1u << f.fraction) - 1);
  const unsigned exponent = bits >> f.fraction & top;
  const double sign = bits >> (f.exponent + f.fraction) & 1 ? -1 : 1;
  const int bias = static_cast<int>(top >> 1);
  if (f.has_infinity && exponent == top) return fraction == 0 ? sign * INFINITY : NAN;
  if (!f.has_infinity && exponent == top && fraction == (1u << f.fraction) - 1) return NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - f.fraction);
  return sign *
         std::ldexp(fraction + (1u << f.fraction), static_cast<int>(exponent) - bias - f.fraction);
}

inline unsigned encode(double value, const Format& f, bool saturates) {
  const unsigned top = (1u << f.exponent) - 1;
  const int bias = static_cast<int>(top >> 1);
  const unsigned sign = std::signbit(value) ? 1u << (f.exponent + f.fraction) : 0;
  const unsigned infinity = top << f.fraction;
  const unsigned largest = f.has_infinity ? infinity - 1 : infinity + (1u << f.fraction) - 2;
  if (std::isnan(value)) return sign | (f.has_infinity ? infinity + 1 : largest + 1);
  value = std::fabs(value);
  if (value == 0) return sign;
  int exponent = std::isinf(value) ? 4096 : std::max(std::ilogb(value), 1 - bias);
  double steps = std::isinf(value) ? 0 : std::nearbyint(std::ldexp(value, f.fraction - exponent));
  if (steps >= std::ldexp(1.0, f.fraction + 1)) {
    steps /= 2;
    ++exponent;
  }
  if (exponent > 4000 || exponent + bias > static_cast<int>(top))
    return sign | (saturates ? largest : infinity);
  unsigned bits = static_cast<unsigned>(steps);
  if (bits >= 1u << f.fraction) bits += static_cast<unsigned>(exponent + bias - 1) << f.fraction;
  if (bits > largest) return sign | (saturates ? largest : infinity);
  return sign | bits;
}

inline double get(const void* data, int type, int64_t at) {
  switch (type) {
    case kF32:
      return static_cast<const float*>(data)[at];
    case kI32:
      return static_cast<const int32_t*>(data)[at];
    case kI8:
      return static_cast<const int8_t*>(data)[at];
    case kF16:
    case kBf16:
      return decode(static_cast<const uint16_t*>(data)[at], format_of(type));
    default:
      return decode(static_cast<const uint8_t*>(data)[at], format_of(type));
  }
}
inline void put(void* data, int type, int64_t at, double value) {
  switch (type) {
    case kF32:
      static_cast<float*>(data)[at] = static_cast<float>(value);
      return;
    case kI32:
      static_cast<int32_t*>(data)[at] = static_cast<int32_t>(value);
      return;
    case kF16:
    case kBf16:
      static_cast<uint16_t*>(data)[at] =
          static_cast<uint16_t>(encode(value, format_of(type), false));
      return;
    default:
      static_cast<uint8_t*>(data)[at] = static_cast<uint8_t>(encode(value, format_of(type), true));
  }
}

}  // namespace stand_in
