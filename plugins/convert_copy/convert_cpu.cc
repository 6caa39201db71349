// Converts elements between dtypes on the CPU, compiled once per instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "convert_cpu.h"
#include "device/numbers.cuh"

namespace convert_copy {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;

// A byte that holds a bool: any value except 0 is true.
struct Bool {
  uint8_t byte;
};

template <class To, class From>
HWY_INLINE void convert_one(From from, To* to) {
  if constexpr (hwy::IsSame<From, Bool>()) {
    convert_one(static_cast<uint8_t>(from.byte != 0), to);
  } else if constexpr (hwy::IsSame<To, Bool>()) {
    to->byte = from != 0;
  } else if constexpr (is_floating<From> && !is_floating<To>) {
    *to = whole_part<To>(from);
  } else {
    *to = static_cast<To>(from);
  }
}

template <class From, class To>
void convert_all(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) convert_one(from[i], &to[i]);
}

// 16-bit floats are converted by way of float.
template <class T>
void widen(const void* from, float* to, int64_t count) {
  simd::for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR {
    simd::store(d, simd::load(d, static_cast<const T*>(from) + i), to + i);
  });
}
template <class T>
void narrow(const float* from, void* to, int64_t count) {
  simd::for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR {
    simd::store(d, simd::load(d, from + i), static_cast<T*>(to) + i);
  });
}

// Calls body(T{}) with the C++ type of elements that are not 16-bit floats.
template <class Body>
void dispatch(Element type, const Body& body) {
  switch (type) {
    case Element::kBool:
      return body(Bool{});
    case Element::kUint8:
      return body(uint8_t{});
    case Element::kInt32:
      return body(int32_t{});
    case Element::kInt64:
      return body(int64_t{});
    case Element::kFloat64:
      return body(double{});
    default:
      return body(float{});
  }
}

void convert_wide(Element from_type, const void* from, Element to_type, void* to, int64_t count) {
  dispatch(from_type, [&](auto f) {
    dispatch(to_type, [&](auto t) {
      convert_all(static_cast<const decltype(f)*>(from), static_cast<decltype(t)*>(to), count);
    });
  });
}

void to_floats(Element type, const void* from, float* to, int64_t count) {
  if (type == Element::kFloat16) return widen<simd::Half>(from, to, count);
  if (type == Element::kBfloat16) return widen<simd::BFloat16>(from, to, count);
  convert_wide(type, from, Element::kFloat32, to, count);
}
void from_floats(const float* from, Element type, void* to, int64_t count) {
  if (type == Element::kFloat16) return narrow<simd::Half>(from, to, count);
  if (type == Element::kBfloat16) return narrow<simd::BFloat16>(from, to, count);
  convert_wide(Element::kFloat32, from, type, to, count);
}

bool is_half_width(Element type) {
  return type == Element::kFloat16 || type == Element::kBfloat16;
}
int64_t size_of(Element type) {
  int64_t size = 2;
  if (!is_half_width(type)) dispatch(type, [&](auto element) { size = sizeof element; });
  return size;
}

void convert(Element from_type, const void* from, Element to_type, void* to, int64_t count) {
  if (!is_half_width(from_type) && !is_half_width(to_type))
    return convert_wide(from_type, from, to_type, to, count);
  constexpr int64_t kMax = 512;
  float floats[kMax];
  for (int64_t i = 0; i < count; i += kMax) {
    const int64_t some = count - i < kMax ? count - i : kMax;
    to_floats(from_type, static_cast<const char*>(from) + i * size_of(from_type), floats, some);
    from_floats(floats, to_type, static_cast<char*>(to) + i * size_of(to_type), some);
  }
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace convert_copy
