// Adds quantised tensors and quantises the sum: a team of threads holds the sums of a group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "groups.cuh"
#include "integers.cuh"

namespace quantizer {

// Adds eight integers of one group, each times the step, to the sums. Integers of 4 bits are
// converted where they lie in the word, without a shift for each: there they are larger by a power
// of two, and the step is smaller by it.
OPDOCK_DEVICE void add_scaled(uint64_t vector, const GroupScale& scale, float (&sum)[8]) {
  OPDOCK_UNROLL
  for (int k = 0; k < 8; ++k) sum[k] = fma(signed_number<8>(vector, k), scale.step, sum[k]);
}
OPDOCK_DEVICE void add_scaled(uint32_t vector, const GroupScale& scale, float (&sum)[8]) {
  if (!(scale.step > 1e-30f)) {  // a smaller one might not be exact
    OPDOCK_UNROLL
    for (int k = 0; k < 8; ++k) sum[k] = fma(signed_number<4>(vector, k), scale.step, sum[k]);
    return;
  }
  OPDOCK_UNROLL
  for (int k = 0; k < 8; ++k) {
    const int place = place_of<4>(k) % 16;
    const uint32_t word = k < 4 ? vector : vector >> 16;
    const float times = static_cast<float>(1 << place);
    const float number =
        bits_float((word & 15u << place) ^ (0x4b000000u | 8u << place)) - (8388608.0f + 8 * times);
    sum[k] = fma(number, scale.step * (1.0f / times), sum[k]);
  }
}

// Adds up eight elements of all tensors, from element `at` on, in the order of the tensors. Plain:
// they are in one group, and aligned.
template <int Bits, int Plain>
OPDOCK_DEVICE void add_tensors(const Source& from, int64_t at, float (&sum)[8]) {
  constexpr int kAhead = 4;  // tensors that are loaded before they are needed
  OPDOCK_UNROLL
  for (int k = 0; k < 8; ++k) sum[k] = 0.0f;
  const int64_t group = quotient(from.length, at);
  const int64_t left = (group + 1) * from.length.divisor - at;
  const bool is_one = Plain || from.even || left >= 8;
  const signed char* q = from.q + at / (8 / Bits);
  OPDOCK_NO_UNROLL
  for (int first = 0; first < from.tensors; first += kAhead) {
    Unit<Bits> vector[kAhead];
    OPDOCK_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      if (first + j >= from.tensors) continue;
      if constexpr (Plain)
        vector[j] = load_unit<Bits>(q);
      else
        vector[j] = load_integers<Bits, Bits>(q, from.numel - at, from.aligned != 0);
      q += from.numel / (8 / Bits);
    }
    OPDOCK_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      if (first + j >= from.tensors) continue;
      int64_t other = (first + j) * from.groups + group;
      GroupScale scale(from, other);
      if (is_one) {
        add_scaled(vector[j], scale, sum);
        if (!from.is_symmetric) {
          OPDOCK_UNROLL
          for (int k = 0; k < 8; ++k) sum[k] += scale.offset;
        }
        continue;
      }
      int64_t rest = left;
      OPDOCK_UNROLL
      for (int k = 0; k < 8; ++k) {
        if (rest == 0 && at + k < from.numel) {
          scale = GroupScale(from, ++other);
          rest = from.length.divisor;
        }
        --rest;
        sum[k] = fma(signed_number<Bits>(vector[j], k), scale.step, sum[k]) + scale.offset;
      }
    }
  }
}

// Plain: the groups of all tensors and of the sum are whole vectors, and all are aligned.
template <int Bits, int Plain>
OPDOCK_KERNEL_BLOCKS(kMostThreads, 2)
sum(SumParams p) {
  constexpr int kHeld = 2;
  pdl_wait_and_trigger();
  OPDOCK_SHARED(Range, scratch, kMostThreads / 32);
  const Team team(p.to.team_bits);
  const Span span(p.to, team.group);
  using Index = OffsetOf<Plain>;
  const Index count = static_cast<Index>(span.end - span.first), step = Index{8} << p.to.team_bits;
  const Index mine = team.rank * 8;
  const bool is_held = kHeld * step >= count;
  float held[kHeld][8];
  Range range = {bits_float(0x7fc00000u), bits_float(0x7fc00000u)};
  const auto load = [&](Index from) {
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i)
      if (from + i * step < count)
        add_tensors<Bits, Plain>(p.from, span.first + from + i * step, held[i]);
  };
  OPDOCK_NO_UNROLL
  for (Index from = mine; from < count; from += kHeld * step) {
    load(from);
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const int64_t at = span.first + from + i * step;
      if (from + i * step >= count) continue;
      OPDOCK_UNROLL
      for (int k = 0; k < 8; ++k)
        if (Plain || (at + k >= span.begin && at + k < span.end))
          range = join(range, {-held[i][k], held[i][k]});
    }
  }
  range = team.reduce(range, scratch);
  const Scale scale = begin_group(p.to, team, range, team.group);
  OPDOCK_NO_UNROLL
  for (Index from = mine; from < count; from += kHeld * step) {
    if (!is_held) load(from);
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i)
      if (from + i * step < count)
        store_integers<Bits, Plain>(p.to, scale, span, span.first, from + i * step, held[i]);
  }
}

}  // namespace quantizer
