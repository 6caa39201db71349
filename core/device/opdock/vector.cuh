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

namespace detail {

template <int Bytes>
OPDOCK_DEVICE auto make_unit() {
  if constexpr (Bytes == 1) return uint8_t();
  if constexpr (Bytes == 2) return uint16_t();
  if constexpr (Bytes == 4) return uint32_t();
  if constexpr (Bytes == 8) return uint64_t();
  if constexpr (Bytes == 16) return Bytes16();
}

}  // namespace detail

// Unit<Bytes> has 1, 2, 4, 8 or 16 bytes of any meaning.
template <int Bytes>
using Unit = decltype(detail::make_unit<Bytes>());

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
