// Replaces numbers by those that their integers stand for: a team of threads holds a group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fake_params.cuh"
#include "quantize.cuh"

namespace quantizer {

template <class T>
OPDOCK_KERNEL_BLOCKS(kMostThreads, 2)
fake(FakeParams p) {
  constexpr int kHeld = 4, kSize = vector_size<T>;
  pdl_wait_and_trigger();
  OPDOCK_SHARED(Range, scratch, kMostThreads / 32);
  const Team team(p.to.team_bits);
  const Span span(p.to, team.group);
  const int64_t step = int64_t{8} << p.to.team_bits, mine = span.first + team.rank * 8;
  const bool is_held = span.first + kHeld * step >= span.end;
  T* const x = static_cast<T*>(p.x);
  Eight<T> held[kHeld];
  PackedRange<T> packed;
  // No vector is read or written of which other threads may have elements.
  const auto load = [&](int64_t from) {
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const int64_t at = from + i * step;
      if (at >= span.end) continue;
      if (p.to.aligned && span.has_all(at))
        held[i].load_aligned(x + at);
      else
        held[i].load_elements(x, span, at);
    }
  };
  OPDOCK_NO_UNROLL
  for (int64_t from = mine; from < span.end; from += kHeld * step) {
    load(from);
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i)
      if (from + i * step < span.end) packed.add(held[i]);
  }
  const Range range = team.reduce(packed.range(), scratch);
  const FakeScale scale = make_fake_scale(p.to.format, -range.negated_least, range.most);
  const uint64_t seed = p.stochastic ? p.random.current_seed() : 0;
  OPDOCK_NO_UNROLL
  for (int64_t from = mine; from < span.end; from += kHeld * step) {
    if (!is_held) load(from);
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const int64_t at = from + i * step;
      if (at >= span.end) continue;
      float number[8];
      held[i].to_numbers(number);
      uint32_t drawn[8] = {};
      if (p.stochastic) random_numbers(seed, p.random.offset + static_cast<uint64_t>(at), drawn);
      OPDOCK_UNROLL
      for (int k = 0; k < 8; ++k) {
        const float q = fake_integer(p.to.format, scale, number[k], p.stochastic != 0, drawn[k]);
        number[k] = p.to.format.is_symmetric ? q / scale.factor : fma(q, scale.step, scale.least);
      }
      OPDOCK_UNROLL
      for (int j = 0; j < Eight<T>::kParts; ++j) {
        float some[kSize];
        OPDOCK_UNROLL
        for (int k = 0; k < kSize; ++k) some[k] = number[j * kSize + k];
        from_floats(some, &held[i].part[j]);
      }
      held[i].store(x, span, at, p.to.aligned != 0);
    }
  }
}

}  // namespace quantizer
