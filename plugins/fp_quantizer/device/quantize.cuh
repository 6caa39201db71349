// Quantises groups: a block has some whole groups, or one that is longer than a block holds, which
// it then reads twice. Codes and scales of consecutive groups are consecutive bytes, whatever their
// sizes: a block collects them in shared memory and writes them as vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "groups.cuh"

namespace fp_quantizer {

// The vectors of a group that a thread holds.
template <class T>
struct Piece {
  static_assert(sizeof(T) * kElements == 16, "a vector of 16 bytes");
  Packed<T> vector[kHeld];

  // Loads from a group at x; elements outside of it become 0.
  OPDOCK_DEVICE void load(const T* x, const Team& team, int64_t begin, int64_t group,
                          bool is_aligned) {
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const int64_t element = team.element(begin, i);
      const int inside = elements_inside(element, group);
      fill_piece(T{}, &vector[i]);
      if (is_aligned) {
        if (inside > 0) load_piece(x + element, &vector[i]);
      } else {
        OPDOCK_UNROLL
        for (int j = 0; j < kElements; ++j)
          if (j < inside) vector[i].set(j, x[element + j]);
      }
    }
  }
  // Returns the largest magnitude, as the bits of a T without a sign: those of NaN are the largest.
  OPDOCK_DEVICE uint32_t largest() const {
    uint32_t most = 0;
    OPDOCK_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      OPDOCK_UNROLL
      for (int k = 0; k < 4; ++k) {
        const uint32_t word = vector[i].bytes.word[k];
        const uint32_t low = word & 0x7fffu, high = word >> 16 & 0x7fffu;
        most = low > most ? low : most;
        most = high > most ? high : most;
      }
    }
    return most;
  }
};

// Returns the largest number of the team. All threads of the block take part. `maxima` is shared
// memory for a number of each warp; it may be used again after the next block_barrier().
OPDOCK_DEVICE uint32_t largest_of_team(uint32_t most, const Team& team, uint32_t* maxima) {
  const auto take = [&](uint32_t other) { most = other > most ? other : most; };
  constexpr int kWidth = warp_width();
  for (int mask = (team.lanes < kWidth ? team.lanes : kWidth) / 2; mask > 0; mask /= 2)
    take(shuffle_xor(most, mask));
  if (team.lanes <= kWidth) return most;
  if (thread_index() % kWidth == 0) maxima[thread_index() / kWidth] = most;
  block_barrier();
  const int warps = team.lanes / kWidth;
  for (int i = 0; i < warps; ++i) take(maxima[team.number * warps + i]);
  return most;
}

// Writes `bytes` bytes to `to` from shared memory, where they begin as far behind a multiple of 16
// as `to` is. All threads of the block take part.
OPDOCK_DEVICE void copy_out(unsigned char* to, const Bytes16* staged, int bytes) {
  const int skip = misalignment(to), end = skip + bytes;
  unsigned char* const first = to - skip;
  for (int at = thread_index() * 16; at < end; at += block_threads() * 16) {
    if (at >= skip && at + 16 <= end) {
      store16(first + at, staged[at / 16]);
      continue;
    }
    const unsigned char* const from = reinterpret_cast<const unsigned char*>(staged);
    for (int i = at < skip ? skip : at; i < at + 16 && i < end; ++i) first[i] = from[i];
  }
}

template <class T, int Bits>
OPDOCK_KERNEL(kThreads)
quantize(QuantizeParams p) {
  // The codes of kThreads * kHeld vectors, with a scale for each thread, behind a misalignment.
  constexpr int kStaged = kThreads * (kHeld * Bits + kScaleBytes) + 16;
  OPDOCK_SHARED(Bytes16, staged, kStaged / 16);
  OPDOCK_SHARED(uint32_t, maxima, kThreads / warp_width());
  pdl_wait_and_trigger();
  const Team team(p.lane_bits);
  const uint64_t seed = p.is_stochastic ? p.random.current_seed() : 0;
  const int64_t step = grid_blocks() * team.count;
  for (int64_t first = block_index() * team.count; first < p.groups; first += step) {
    const int64_t group = first + team.number;
    const bool is_there = group < p.groups;
    // A thread without a group loads from no address.
    const int64_t size = is_there ? p.group : 0;
    const T* const x = static_cast<const T*>(p.x) + (is_there ? group : 0) * p.group;
    Piece<T> piece;
    uint32_t most = 0;
    // The first span is loaded last, and stays.
    const int64_t spans = (p.group + team.span - 1) / team.span;
    for (int64_t span = spans - 1; span >= 0; --span) {
      piece.load(x, team, span * team.span, size, p.is_aligned);
      const uint32_t here = piece.largest();
      most = here > most ? here : most;
    }
    most = largest_of_team(most, team, maxima);
    const Factors factors = factors_of(p.codes, to_float(T{static_cast<uint16_t>(most)}));
    for (int64_t begin = 0; begin < p.group; begin += team.span) {
      if (begin > 0) {
        block_barrier();  // until the span before has been copied out
        piece.load(x, team, begin, size, p.is_aligned);
      }
      // The bytes of this span, or of all groups of the block.
      const bool is_last = begin + team.span >= p.group;
      const int64_t begin_byte = begin * Bits / 8;
      unsigned char* const to = p.q + first * p.row + begin_byte;
      const int64_t groups = p.groups - first < team.count ? p.groups - first : team.count;
      const int bytes =
          static_cast<int>(is_last ? groups * p.row - begin_byte : team.span * Bits / 8);
      unsigned char* const bytes_at = reinterpret_cast<unsigned char*>(staged);
      // Where this thread's group would begin in `staged`.
      const int64_t own = misalignment(to) + team.number * p.row - begin_byte;
      OPDOCK_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const int64_t element = team.element(begin, i);
        const int inside = elements_inside(element, size);
        if (inside == 0) continue;
        uint32_t addend[kElements];
        if (p.is_stochastic) {
          const uint64_t number = static_cast<uint64_t>(group * p.group + element);
          random_numbers(seed, p.random.offset + number, addend);
          OPDOCK_UNROLL
          for (int j = 0; j < kElements; ++j) addend[j] = random_of(p.codes, addend[j]);
        } else {
          OPDOCK_UNROLL
          for (int j = 0; j < kElements; ++j) addend[j] = half_of(p.codes);
        }
        float value[kElements];
        to_floats(piece.vector[i], value);
        Word<Bits> codes;
        codes.clear();
        OPDOCK_UNROLL
        for (int j = 0; j < kElements; ++j) {
          const float scaled = value[j] * factors.before * factors.factor;
          const uint32_t code = encode(p.codes, float_bits(scaled) & 0x7fffffffu, addend[j]);
          const uint32_t sign = piece.vector[i].get(j).bits >> 15;
          codes.put(j, code | sign << (Bits - 1));
        }
        codes.store(bytes_at + (own + element * Bits / 8), inside, p.has_units);
      }
      if (is_last && is_there && team.lane == 0)
        store_bytes(bytes_at + (own + p.row - kScaleBytes), float_bits(factors.scale));
      block_barrier();
      copy_out(to, staged, bytes);
    }
    block_barrier();  // until all has been copied out
  }
}

}  // namespace fp_quantizer
