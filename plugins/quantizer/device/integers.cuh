// Reads integers of 4 or 8 bits and the parameters of their groups.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "quantizer_params.cuh"

namespace quantizer {

using namespace opdock;

OPDOCK_DEVICE int64_t quotient(const Divisor& by, int64_t number) {
  if (by.divisor == 1) return number;
  return static_cast<int64_t>(multiply_high(static_cast<uint64_t>(number), by.factor) >> by.shift);
}

// Returns how many bits element k of a vector is shifted to the left. The first of two integers of
// 4 bits is in the high bits of a byte.
template <int Bits>
OPDOCK_DEVICE constexpr int place_of(int k) {
  return Bits == 8 ? 8 * k : 4 * (k ^ 1);
}

// Loads integers from `from` on, of which `count` exist: Bytes bytes, aligned if is_aligned.
template <int Bits, int Bytes>
OPDOCK_DEVICE Unit<Bytes> load_integers(const void* from, int64_t count, bool is_aligned) {
  const uint8_t* const bytes = static_cast<const uint8_t*>(from);
  if (is_aligned && count * Bits >= 8 * Bytes) return load_unit<Bytes>(from);
  Unit<Bytes> word = 0;
  OPDOCK_UNROLL
  for (int i = 0; i < Bytes; ++i)
    if (i * (8 / Bits) < count)
      word = static_cast<Unit<Bytes>>(word | static_cast<Unit<Bytes>>(bytes[i]) << 8 * i);
  return word;
}

// Returns element k of a vector as a float, exactly.
template <int Bits, class Word>
OPDOCK_DEVICE float signed_number(Word word, int k) {
  const uint32_t bits = static_cast<uint32_t>(word >> place_of<Bits>(k));
  if constexpr (Bits == 8) {
    return int8_to_float(bits);
  } else {
    return bits_float(0x4b000000u | ((bits & 15u) ^ 8u)) - (8388608.0f + 8.0f);
  }
}
template <int Bits, class Word>
OPDOCK_DEVICE float unsigned_number(Word word, int k) {
  const uint32_t bits = static_cast<uint32_t>(word >> place_of<Bits>(k));
  return bits_float(0x4b000000u | (bits & (Bits == 8 ? 255u : 15u))) - 8388608.0f;
}

// The parameters of a group.
struct GroupScale {
  float step, offset;

  OPDOCK_DEVICE GroupScale(const Source& from, int64_t group) {
    step = from.is_symmetric ? from.params[group] : from.params[2 * group];
    offset = from.is_symmetric ? 0.0f : from.params[2 * group + 1];
  }
};

}  // namespace quantizer
