// Shared by the kernels over groups: which threads have which elements, and moving codes in units.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "groups_params.cuh"
#include "opdock/device.cuh"
#include "opdock/packed.cuh"

namespace fp_quantizer {

using namespace opdock;

// A team is the threads of one group: a power of two, up to a block. A thread has kHeld vectors of
// its group at a time, `span` elements of the group lie in those of all its threads.
struct Team {
  int lanes;  // threads of a team
  int lane;   // this thread's index in its team
  int number;
  int count;  // teams of the block
  int64_t span;

  OPDOCK_DEVICE explicit Team(int lane_bits) {
    lanes = 1 << lane_bits;
    lane = thread_index() & (lanes - 1);
    number = thread_index() >> lane_bits;
    count = block_threads() >> lane_bits;
    span = static_cast<int64_t>(lanes) * (kHeld * kElements);
  }
  // Returns the first element of this thread's vector number i, in a span that starts at `begin`.
  OPDOCK_DEVICE int64_t element(int64_t begin, int i) const {
    return begin + static_cast<int64_t>(i * lanes + lane) * kElements;
  }
};

// Returns how many elements of a vector at `element` lie inside of the group, 0 to kElements.
OPDOCK_DEVICE int elements_inside(int64_t element, int64_t group) {
  const int64_t left = group - element;
  return left >= kElements ? kElements : left > 0 ? static_cast<int>(left) : 0;
}

// The codes of a vector in words, the first element in the lowest bits.
template <int Bits>
struct Word {
  static constexpr int kCount = (Bits * kElements + 31) / 32;
  static constexpr int kUnit = code_unit(Bits);
  uint32_t word[kCount];

  OPDOCK_DEVICE void clear() {
    OPDOCK_UNROLL
    for (int i = 0; i < kCount; ++i) word[i] = 0;
  }
  // Puts a code in place j, which is 0 so far.
  OPDOCK_DEVICE void put(int j, uint32_t code) {
    const int at = j * Bits;
    word[at / 32] |= code << at % 32;
    if (at % 32 + Bits > 32) word[at / 32 + 1] |= code >> (32 - at % 32);
  }
  OPDOCK_DEVICE uint32_t get(int j) const {
    const int at = j * Bits;
    uint32_t code = word[at / 32] >> at % 32;
    if (at % 32 + Bits > 32) code |= word[at / 32 + 1] << (32 - at % 32);
    return code;
  }
  // `elements` of them lie at `at`; has_units: all of them, and `at` is a multiple of kUnit.
  OPDOCK_DEVICE void load(const unsigned char* at, int elements, bool has_units) {
    if (has_units) {
      if constexpr (kUnit == 4) {
        OPDOCK_UNROLL
        for (int i = 0; i < kCount; ++i) word[i] = load_unit<4>(at + 4 * i);
      } else {
        clear();
        OPDOCK_UNROLL
        for (int i = 0; i < Bits / 2; ++i)
          word[i / 2] |= static_cast<uint32_t>(load_unit<2>(at + 2 * i)) << i % 2 * 16;
      }
      return;
    }
    clear();
    OPDOCK_UNROLL
    for (int i = 0; i < Bits; ++i)
      if (8 * i < elements * Bits) word[i / 4] |= static_cast<uint32_t>(at[i]) << i % 4 * 8;
  }
  OPDOCK_DEVICE void store(unsigned char* at, int elements, bool has_units) const {
    if (has_units) {
      OPDOCK_UNROLL
      for (int i = 0; i < Bits / kUnit; ++i) {
        if constexpr (kUnit == 4) {
          store_unit<4>(at + 4 * i, word[i]);
        } else {
          store_unit<2>(at + 2 * i, static_cast<uint16_t>(word[i / 2] >> i % 2 * 16));
        }
      }
      return;
    }
    OPDOCK_UNROLL
    for (int i = 0; i < Bits; ++i)
      if (8 * i < elements * Bits) at[i] = static_cast<unsigned char>(word[i / 4] >> i % 4 * 8);
  }
};

OPDOCK_DEVICE void store_bytes(unsigned char* at, uint32_t value) {
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) at[i] = static_cast<unsigned char>(value >> 8 * i);
}
OPDOCK_DEVICE uint32_t load_bytes(const unsigned char* at) {
  uint32_t value = 0;
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) value |= static_cast<uint32_t>(at[i]) << 8 * i;
  return value;
}

}  // namespace fp_quantizer
