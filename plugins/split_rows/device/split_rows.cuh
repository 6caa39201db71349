// Copies between pieces of memory and the whole that they make up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "split_rows_params.cuh"

namespace split_rows {

using namespace opdock;

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

template <class Unit>
OPDOCK_DEVICE void copy_unit(const Unit* from, Unit* to) {
  *to = *from;
}
OPDOCK_DEVICE void copy_unit(const Bytes16* from, Bytes16* to) {
  store16(to, load16(from));
}

// The piece that unit `at` of the whole belongs to.
OPDOCK_DEVICE int find_piece(const Pieces& p, int64_t at) {
  int low = 0, high = p.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (p.end[middle] <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A block copies stretches of kThreads * kUnitsPerThread units. It looks for a stretch's first
// piece once; from there each thread goes on to the next pieces.
template <int Bytes>
OPDOCK_KERNEL(kThreads)
copy_pieces(Pieces p) {
  using Unit = typename UnitOf<Bytes>::type;
  constexpr int64_t kStretch = kThreads * kUnitsPerThread;
  const int64_t all = p.end[p.count - 1];
  for (int64_t first = block_index() * kStretch; first < all; first += grid_blocks() * kStretch) {
    const int64_t last = all - first < kStretch ? all : first + kStretch;
    int piece = find_piece(p, first);
    for (int64_t i = first + thread_index(); i < last; i += block_threads()) {
      while (p.end[piece] <= i) ++piece;
      const int64_t begin = piece == 0 ? 0 : p.end[piece - 1];
      Unit* const part = static_cast<Unit*>(p.piece[piece]) + (i - begin);
      Unit* const whole = static_cast<Unit*>(p.whole) + i;
      if (p.joins) {
        copy_unit(part, whole);
      } else {
        copy_unit(whole, part);
      }
    }
  }
}

}  // namespace split_rows
