// GPU kernel that converts elements from one dtype to another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "numbers.cuh"
#include "opdock/device.cuh"

namespace convert_copy {

using namespace opdock;
using opdock::half;  // this declaration wins over hipRTC's own half

// Reads an element as the type that it is converted from: 16-bit floats by way of float, and for a
// bool any byte except 0 is true.
template <class T>
OPDOCK_DEVICE T read(const T* from) {
  return *from;
}
OPDOCK_DEVICE float read(const half* from) {
  return to_float(*from);
}
OPDOCK_DEVICE float read(const bfloat16* from) {
  return to_float(*from);
}
OPDOCK_DEVICE uint8_t read(const bool* from) {
  return *reinterpret_cast<const uint8_t*>(from) != 0;
}

template <class To>
struct Converted {
  template <class From>
  static OPDOCK_DEVICE To of(From value) {
    if constexpr (is_floating<From> && !is_floating<To>) {
      return whole_part<To>(value);
    } else {
      return static_cast<To>(value);
    }
  }
};
template <>
struct Converted<bool> {
  template <class From>
  static OPDOCK_DEVICE bool of(From value) {
    return value != From(0);
  }
};
template <>
struct Converted<half> {
  template <class From>
  static OPDOCK_DEVICE half of(From value) {
    return from_float<half>(static_cast<float>(value));
  }
};
template <>
struct Converted<bfloat16> {
  template <class From>
  static OPDOCK_DEVICE bfloat16 of(From value) {
    return from_float<bfloat16>(static_cast<float>(value));
  }
};

// A thread handles one element at a time: the transfer from or to the host is slower than that.
template <class From, class To>
OPDOCK_KERNEL(256)
convert(const From* from, To* to, int64_t count) {
  const int64_t step = grid_blocks() * block_threads();
  for (int64_t i = block_index() * block_threads() + thread_index(); i < count; i += step)
    to[i] = Converted<To>::of(read(from + i));
}

}  // namespace convert_copy
