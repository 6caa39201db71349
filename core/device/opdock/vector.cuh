// 16 bytes of elements, loaded and stored by one instruction each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/dtype.cuh"

namespace opdock {

// Elements of T in 16 bytes: 4 of float, 8 of half.
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

}  // namespace opdock
