// Unpacks 8-bit keys and values, four of which are in a word.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_params.cuh"
#include "opdock/device.cuh"

namespace attention {

using namespace opdock;

// The elements of keys and values in 16 bytes, as words of two elements of T.
template <class T, int Kind>
struct Pairs {
  static constexpr int kElements = Kind == kSame ? 8 : 16;
  uint32_t word[kElements / 2];

  OPDOCK_DEVICE explicit Pairs(const Bytes16& bytes) {
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t from = bytes.word[i];
      if constexpr (Kind == kSame)
        word[i] = from;
      else if constexpr (Kind == kInt8)
        int8_pairs(T{}, from, &word[2 * i], &word[2 * i + 1]);
      else
        float8_pairs(T{}, from, &word[2 * i], &word[2 * i + 1]);
    }
  }
};

}  // namespace attention
