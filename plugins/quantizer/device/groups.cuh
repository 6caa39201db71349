// The threads that share a group, the numbers that each of them holds, and the integers that they
// write. A thread's numbers come in vectors of eight, which lie at multiples of eight elements, so
// that 16-bit numbers are read and integers are written by whole vectors. The first and the last
// vector of a group may have elements of other groups, which are left out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"
#include "quantizer_params.cuh"

namespace quantizer {

using namespace opdock;

// The negated least and the greatest number of a part of a group: NaN if it has no number.
struct Range {
  float negated_least, most;
};

OPDOCK_DEVICE Range join(const Range& a, const Range& b) {
  return {max(a.negated_least, b.negated_least), max(a.most, b.most)};
}
OPDOCK_DEVICE Range from_lane(const Range& range, int mask) {
  return {shuffle_xor(range.negated_least, mask), shuffle_xor(range.most, mask)};
}

// The threads of one group: a power of two of them, in one block, which may have several teams.
struct Team {
  int threads, rank;
  int64_t group;

  OPDOCK_DEVICE explicit Team(int bits) {
    threads = 1 << bits;
    rank = thread_index() & (threads - 1);
    const int64_t block = block_index_y() * grid_blocks() + block_index();
    group = block * (block_threads() >> bits) + (thread_index() >> bits);
  }

  template <int Plain>
  static OPDOCK_DEVICE auto offset() {
    if constexpr (Plain != 0) {
      return int32_t();
    } else {
      return int64_t();
    }
  }

  // Returns the range of the whole team. All threads of the block take part, once. scratch: shared
  // memory for a Range of each warp.
  OPDOCK_DEVICE Range reduce(Range range, Range* scratch) const {
    const int width = warp_width();
    OPDOCK_UNROLL
    for (int mask = 1; mask < width; mask *= 2) {
      const Range other = from_lane(range, mask);
      if (mask < threads) range = join(range, other);
    }
    if (threads <= width) return range;
    const int warps = threads / width, lane = thread_index() % width;
    const int warp = thread_index() / width;
    if (lane == 0) scratch[warp] = range;
    block_barrier();
    range = scratch[warp / warps * warps + lane % warps];
    for (int mask = 1; mask < warps && mask < width; mask *= 2)
      range = join(range, from_lane(range, mask));
    return range;
  }
};

// The elements of one group, and of its vectors.
struct Span {
  int64_t begin, end;  // the group's elements
  int64_t first;       // where the vectors begin

  OPDOCK_DEVICE Span(const Target& to, int64_t group) {
    const bool is_there = group < to.groups;
    begin = is_there ? group * to.length : 0;
    end = is_there ? begin + to.length : 0;
    first = begin & ~int64_t{7};
  }
  OPDOCK_DEVICE bool has_all(int64_t at) const { return at >= begin && at + 8 <= end; }
};

// The type of positions in a group: a plain one has fewer than 2^31 elements.
template <int Plain>
using OffsetOf = decltype(Team::offset<Plain>());

// Returns integers of numbers, with 2^(Bits - 1) added to each; NaN becomes 0.
template <int Bits>
OPDOCK_DEVICE uint32_t integer_of(float number) {
  constexpr float kLevels = Bits == 8 ? 128.0f : 8.0f;
  number = number == number ? number : 0.0f;
  number = max(min(number, kLevels - 1.0f), -kLevels);
  // The sum is rounded to an integer, ties to even, which is in the low bits of its mantissa.
  return float_bits(number + (8388608.0f + kLevels));
}

// Puts eight integers into a vector. The bits above an integer are those of 2^23, of which only
// those of the first elements stay inside of the word: they are subtracted.
OPDOCK_DEVICE uint64_t pack(const uint32_t (&integer)[8], Unit<8>*) {
  uint32_t word[2];
  OPDOCK_UNROLL
  for (int i = 0; i < 2; ++i) {
    word[i] = integer[4 * i] - 0x4b000000u;
    OPDOCK_UNROLL
    for (int k = 1; k < 4; ++k) word[i] += integer[4 * i + k] << 8 * k;
    word[i] ^= 0x80808080u;
  }
  return word[0] | static_cast<uint64_t>(word[1]) << 32;
}
OPDOCK_DEVICE uint32_t pack(const uint32_t (&integer)[8], Unit<4>*) {
  uint32_t word = 0u - 0xfb000000u;
  OPDOCK_UNROLL
  for (int k = 0; k < 8; ++k) word += integer[k] << (k ^ 1) * 4;
  return word ^ 0x88888888u;
}

// Writes eight numbers, from element `at` of a group's span on, as integers. place: where the first
// integer of the span is. Plain: all eight are in the group, and aligned in the result.
template <int Bits, int Plain>
OPDOCK_DEVICE void store_integers(const Target& to, const Scale& scale, const Span& span,
                                  int64_t place, OffsetOf<Plain> at, const float (&number)[8]) {
  uint32_t integer[8];
  if (to.format.scales_offset) {
    OPDOCK_UNROLL
    for (int k = 0; k < 8; ++k)
      integer[k] = integer_of<Bits>(fma(number[k], scale.factor, scale.offset));
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < 8; ++k)
      integer[k] = integer_of<Bits>((number[k] - scale.offset) * scale.factor);
  }
  const Unit<Bits> vector = pack(integer, static_cast<Unit<Bits>*>(nullptr));
  if constexpr (Plain) {
    store_unit<Bits>(to.q + place / (8 / Bits) + at / 8 * Bits, vector);
  } else {
    const int64_t first = span.first + at, first_place = place + at;
    if (to.aligned && (first_place & 7) == 0 && span.has_all(first)) {
      store_unit<Bits>(to.q + first_place / 8 * Bits, vector);
      return;
    }
    constexpr int kInByte = 8 / Bits;
    OPDOCK_UNROLL
    for (int i = 0; i < Bits; ++i) {
      const int64_t element = first + i * kInByte;
      if (element >= span.begin && element < span.end)
        to.q[(first_place + i * kInByte) / kInByte] = static_cast<signed char>(vector >> 8 * i);
    }
  }
}

// Returns the scale of a group, which its first thread writes as the parameters of the group's
// slot.
OPDOCK_DEVICE Scale begin_group(const Target& to, const Team& team, const Range& range,
                                int64_t slot) {
  Scale scale = make_scale(to.format, -range.negated_least, range.most);
  const float step = 1.0f / scale.factor;
  if (to.format.scales_offset) {
    const float least = range.most == range.most ? -range.negated_least : 0.0f;
    scale.offset = fma(-least, scale.factor, to.format.bits == 8 ? -128.0f : -8.0f);
  }
  if (team.rank == 0 && team.group < to.groups) {
    if (to.format.is_symmetric) {
      to.params[slot] = step;
    } else {
      to.params[2 * slot] = step;
      to.params[2 * slot + 1] = scale.offset;
    }
  }
  return scale;
}

}  // namespace quantizer
