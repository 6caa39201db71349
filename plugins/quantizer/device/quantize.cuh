// Quantises groups: a team of threads holds a group in registers, so that it is read once; of
// longer groups each thread reads its part again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "groups.cuh"

namespace quantizer {

// Eight elements as they lie in memory.
template <class T>
struct Eight {
  static constexpr int kSize = vector_size<T>, kParts = 8 / kSize;
  Packed<T> part[kParts];

  OPDOCK_DEVICE void load_aligned(const T* x) {
    OPDOCK_UNROLL
    for (int i = 0; i < kParts; ++i) load_piece(x + i * kSize, &part[i]);
  }
  // Loads the elements from `at` on that are in the span; the others are NaN.
  OPDOCK_DEVICE void load(const QuantizeParams& p, const Span& span, int64_t at) {
    const T* const x = static_cast<const T*>(p.x);
    if (span.has_all(at)) {
      const int bytes = misalignment(x);
      OPDOCK_UNROLL
      for (int i = 0; i < kParts; ++i) load_operand(x, at + i * kSize, p.numel, bytes, &part[i]);
      return;
    }
    load_elements(x, span, at);
  }
  // Does the same by single elements.
  OPDOCK_DEVICE void load_elements(const T* x, const Span& span, int64_t at) {
    OPDOCK_UNROLL
    for (int i = 0; i < kParts; ++i) fill_piece(from_float<T>(bits_float(0x7fc00000u)), &part[i]);
    OPDOCK_UNROLL
    for (int k = 0; k < 8; ++k)
      if (at + k >= span.begin && at + k < span.end) part[k / kSize].set(k % kSize, x[at + k]);
  }
  // Stores the elements that are in the span.
  OPDOCK_DEVICE void store(T* x, const Span& span, int64_t at, bool is_aligned) const {
    if (is_aligned && span.has_all(at)) {
      OPDOCK_UNROLL
      for (int i = 0; i < kParts; ++i) store_piece(x + at + i * kSize, part[i]);
      return;
    }
    OPDOCK_UNROLL
    for (int k = 0; k < 8; ++k)
      if (at + k >= span.begin && at + k < span.end) x[at + k] = part[k / kSize].get(k % kSize);
  }
  OPDOCK_DEVICE void to_numbers(float (&out)[8]) const {
    OPDOCK_UNROLL
    for (int i = 0; i < kParts; ++i) {
      float some[kSize];
      to_floats(part[i], some);
      OPDOCK_UNROLL
      for (int k = 0; k < kSize; ++k) out[i * kSize + k] = some[k];
    }
  }
};

template <class T>
OPDOCK_DEVICE Packed<T> negated(const Packed<T>& piece) {
  constexpr uint32_t kSigns = sizeof(T) == 4 ? 0x80000000u : 0x80008000u;
  Packed<T> other;
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) other.bytes.word[i] = piece.bytes.word[i] ^ kSigns;
  return other;
}

// The range of some vectors; numbers are compared two at a time where the GPU does that.
template <class T>
struct PackedRange {
  Packed<T> negated_least, most;

  OPDOCK_DEVICE PackedRange() {
    fill_piece(from_float<T>(bits_float(0x7fc00000u)), &most);
    negated_least = most;
  }
  OPDOCK_DEVICE void add(const Eight<T>& eight) {
    OPDOCK_UNROLL
    for (const Packed<T>& part : eight.part) {
      most = max_packed(most, part);
      negated_least = max_packed(negated_least, negated(part));
    }
  }
  OPDOCK_DEVICE Range range() const {
    float least[vector_size<T>], greatest[vector_size<T>];
    to_floats(negated_least, least);
    to_floats(most, greatest);
    Range range = {least[0], greatest[0]};
    OPDOCK_UNROLL
    for (int k = 1; k < vector_size<T>; ++k) range = join(range, {least[k], greatest[k]});
    return range;
  }
};

// Plain: groups are whole vectors, and x and q are aligned, so that no vector needs a check.
template <class T, int Plain>
OPDOCK_KERNEL_BLOCKS(kMostThreads, Plain && sizeof(T) == 2 ? 3 : 2)
quantize(QuantizeParams p) {
  constexpr int kHeld = 4;
  pdl_wait_and_trigger();
  OPDOCK_SHARED(Range, scratch, kMostThreads / 32);
  const Team team(p.to.team_bits);
  const Span span(p.to, team.group);
  using Index = OffsetOf<Plain>;
  const Index count = static_cast<Index>(span.end - span.first), step = Index{8} << p.to.team_bits;
  const Index mine = team.rank * 8;
  const bool is_held = kHeld * step >= count;
  const T* const x = static_cast<const T*>(p.x) + span.first;
  Eight<T> held[kHeld];
  PackedRange<T> packed;
  const auto load = [&](Index from) {
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const Index at = from + i * step;
      if (at >= count) continue;
      if constexpr (Plain)
        held[i].load_aligned(x + at);
      else
        held[i].load(p, span, span.first + at);
    }
  };
  OPDOCK_NO_UNROLL
  for (Index from = mine; from < count; from += kHeld * step) {
    load(from);
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i)
      if (from + i * step < count) packed.add(held[i]);
  }
  const Range range = team.reduce(packed.range(), scratch);
  const int64_t slot = p.to.slots.slot_of(team.group);
  const Scale scale = begin_group(p.to, team, range, slot);
  // Where the integer of the element at span.first is, or would be.
  const int64_t place = span.first + (slot - team.group) * p.to.length;
  OPDOCK_NO_UNROLL
  for (Index from = mine; from < count; from += kHeld * step) {
    if (!is_held) load(from);
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const Index at = from + i * step;
      if (at >= count) break;
      float number[8];
      held[i].to_numbers(number);
      if (p.to.format.bits == 8)
        store_integers<8, Plain>(p.to, scale, span, place, at, number);
      else
        store_integers<4, Plain>(p.to, scale, span, place, at, number);
    }
  }
}

}  // namespace quantizer
