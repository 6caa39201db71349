// opdock/pieces.hpp: for plugins of elementwise ops: how rows are divided into pieces, which CPU
// threads share. The plugin and its simd_sources use the same division.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_PIECES_HPP_
#define OPDOCK_PIECES_HPP_

#include <stdint.h>

namespace opdock {

// The number of elements for which waking a thread pays off: about ten microseconds of work.
inline constexpr int64_t kElementGrain = 16384;

// The division of a row into pieces, so that threads can share a long row.
struct Pieces {
  explicit Pieces(int64_t length)  // length: of a row, at least 1
      : size(length < kElementGrain ? length : kElementGrain),
        per_row((length + size - 1) / size) {}
  int64_t size;  // of a piece; a row's last piece may have fewer elements
  int64_t per_row;
};

// Calls body(begin, end) on disjoint ranges that make up all rows' pieces, in the order of rows, on
// the threads of an opdock::Call; waits for all.
template <class Call, class Body>
void run_pieces(const Call& call, int64_t rows, const Pieces& pieces, const Body& body) {
  const int64_t grain = kElementGrain / pieces.size;
  call.parallel_for(rows * pieces.per_row, grain < 1 ? 1 : grain, body);
}

}  // namespace opdock
#endif  // OPDOCK_PIECES_HPP_
