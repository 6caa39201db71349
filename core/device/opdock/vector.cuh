// Loads and stores of one instruction each: 16 bytes of elements, or a unit of 1 to 16 bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/dtype.cuh"

namespace opdock {

// The number of elements of T in 16 bytes: 4 of float, 8 of half.
template <typename T>
constexpr int vector_size = 16 / static_cast<int>(sizeof(T));

template <typename T>
struct alignas(16) Vector {
  T at[vector_size<T>];
};

// `from` and `to` are aligned to 16 bytes.
template <typename T>
OPDOCK_DEVICE Vector<T> load_vector(const T* from) {
  union {
    Bytes16 bytes;
    Vector<T> vector;
  } both;
  both.bytes = load16(from);
  return both.vector;
}
template <typename T>
OPDOCK_DEVICE void store_vector(T* to, const Vector<T>& vector) {
  union {
    Bytes16 bytes;
    Vector<T> vector;
  } both;
  both.vector = vector;
  store16(to, both.bytes);
}

// Unit<Bytes> has 1, 2, 4, 8 or 16 bytes of any meaning.
template <int Bytes>
struct UnitOf;
template <>
struct UnitOf<1> {
  using type = uint8_t;
};
template <>
struct UnitOf<2> {
  using type = uint16_t;
};
template <>
struct UnitOf<4> {
  using type = uint32_t;
};
template <>
struct UnitOf<8> {
  using type = uint64_t;
};
template <>
struct UnitOf<16> {
  using type = Bytes16;
};
template <int Bytes>
using Unit = typename UnitOf<Bytes>::type;

// `from` and `to` are aligned to the unit's size.
template <int Bytes>
OPDOCK_DEVICE Unit<Bytes> load_unit(const void* from) {
  if constexpr (Bytes == 16) {
    return load16(from);
  } else {
    return *static_cast<const Unit<Bytes>*>(from);
  }
}
template <int Bytes>
OPDOCK_DEVICE void store_unit(void* to, const Unit<Bytes>& unit) {
  if constexpr (Bytes == 16) {
    store16(to, unit);
  } else {
    *static_cast<Unit<Bytes>*>(to) = unit;
  }
}

}  // namespace opdock
