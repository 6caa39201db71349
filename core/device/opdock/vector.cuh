// Memory that is loaded and stored by one instruction each: 16 bytes of elements, or 1 to 16 bytes.
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

// The elements of a vector as floats. Elements of 16 bits are taken two at a time, and again each
// time: their floats need twice the registers.
template <typename T>
OPDOCK_DEVICE void to_floats(const Vector<T>& vector, float (&out)[vector_size<T>]) {
#if OPDOCK_HAS_PAIRS
  if constexpr (sizeof(T) == 2) {
    union {
      Bytes16 bytes;
      Vector<T> vector;
    } both;
    both.vector = vector;
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i)
      pair_to_floats(T{}, both.bytes.word[i], &out[2 * i], &out[2 * i + 1]);
  } else
#endif
  {
    OPDOCK_UNROLL
    for (int j = 0; j < vector_size<T>; ++j) out[j] = to_float(vector.at[j]);
  }
}
// Rounds to nearest, ties to even.
template <typename T>
OPDOCK_DEVICE void from_floats(const float (&values)[vector_size<T>], Vector<T>* out) {
#if OPDOCK_HAS_PAIRS
  if constexpr (sizeof(T) == 2) {
    union {
      Bytes16 bytes;
      Vector<T> vector;
    } both;
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i)
      both.bytes.word[i] = floats_to_pair(T{}, values[2 * i], values[2 * i + 1]);
    *out = both.vector;
  } else
#endif
  {
    OPDOCK_UNROLL
    for (int j = 0; j < vector_size<T>; ++j) out->at[j] = from_float<T>(values[j]);
  }
}

// The larger elements; the other one if one is NaN.
template <typename T>
OPDOCK_DEVICE Vector<T> max_vector(const Vector<T>& a, const Vector<T>& b) {
  Vector<T> most;
#if OPDOCK_HAS_PAIRS
  if constexpr (sizeof(T) == 2) {
    union {
      Bytes16 bytes;
      Vector<T> vector;
    } x, y;
    x.vector = a;
    y.vector = b;
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i) x.bytes.word[i] = max_pair(T{}, x.bytes.word[i], y.bytes.word[i]);
    most = x.vector;
  } else
#endif
  {
    OPDOCK_UNROLL
    for (int j = 0; j < vector_size<T>; ++j)
      most.at[j] = from_float<T>(max(to_float(a.at[j]), to_float(b.at[j])));
  }
  return most;
}

// 16 bytes from byte `bytes` (1 to 15, a multiple of T's size) of two vectors that follow each
// other.
template <typename T>
OPDOCK_DEVICE Vector<T> cut_vector(const Vector<T>& low, const Vector<T>& high, int bytes) {
  union Both {
    Bytes16 bytes;
    Vector<T> vector;
  };
  Both a, b, cut;
  a.vector = low;
  b.vector = high;
  uint32_t word[8];
  OPDOCK_UNROLL
  for (int i = 0; i < 8; ++i) word[i] = i < 4 ? a.bytes.word[i] : b.bytes.word[i - 4];
  // By two words, then by one, then by bits: no register is chosen by a number known at run time.
  OPDOCK_UNROLL
  for (int i = 0; i < 6; ++i) word[i] = (bytes & 8) != 0 ? word[i + 2] : word[i];
  OPDOCK_UNROLL
  for (int i = 0; i < 5; ++i) word[i] = (bytes & 4) != 0 ? word[i + 1] : word[i];
  const int bits = bytes % 4 * 8;
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint64_t two = static_cast<uint64_t>(word[i + 1]) << 32 | word[i];
    cut.bytes.word[i] = static_cast<uint32_t>(two >> bits);
  }
  return cut.vector;
}

// Unit<Bytes> has 1, 2, 4, 8 or 16 bytes, whatever they mean.
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
