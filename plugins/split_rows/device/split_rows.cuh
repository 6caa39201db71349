// Copies between pieces of memory and the whole that they make up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/search.cuh"
#include "split_rows_params.cuh"

namespace split_rows {

using namespace opdock;

// A block copies stretches of kThreads * kUnitsPerThread units. It searches for a stretch's first
// piece once; from there each thread advances to the following pieces.
template <int Bytes>
OPDOCK_KERNEL(kThreads)
copy_pieces(Pieces p) {
  constexpr int64_t kStretch = kThreads * kUnitsPerThread;
  const int64_t all = p.end[p.count - 1];
  for (int64_t first = block_index() * kStretch; first < all; first += grid_blocks() * kStretch) {
    const int64_t last = all - first < kStretch ? all : first + kStretch;
    int piece = upper_bound(p.end, p.count, first);
    for (int64_t i = first + thread_index(); i < last; i += block_threads()) {
      while (p.end[piece] <= i) ++piece;
      const int64_t begin = piece == 0 ? 0 : p.end[piece - 1];
      Unit<Bytes>* const part = static_cast<Unit<Bytes>*>(p.piece[piece]) + (i - begin);
      Unit<Bytes>* const whole = static_cast<Unit<Bytes>*>(p.whole) + i;
      store_unit<Bytes>(p.joins ? whole : part, load_unit<Bytes>(p.joins ? part : whole));
    }
  }
}

}  // namespace split_rows
