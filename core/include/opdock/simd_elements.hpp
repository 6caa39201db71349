// opdock/simd_elements.hpp: for elementwise CPU kernels in a plugin's simd_sources: iterates over
// the rows of opdock::Elements in the pieces that threads share (opdock/pieces.hpp).
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_SIMD_ELEMENTS_HPP_
#define OPDOCK_SIMD_ELEMENTS_HPP_

#include <opdock/elements.cuh>

#include "opdock/pieces.hpp"
#include "opdock/simd_row.hpp"

namespace opdock {
namespace simd {
namespace OPDOCK_SIMD_LEVEL {

// One row of all tensors, from `column` on: [t] is where that of tensor t begins, which must be
// present.
template <class T, int N>
struct ElementRow {
  const Elements<N>& at;
  const RowCursor<Rows<N>, N>& cursor;
  int64_t column;

  HWY_INLINE T* operator[](int t) const {
    return static_cast<T*>(at.data[t]) + cursor.offset(t) + column;
  }
};

// Calls body(row, n) for pieces first … last - 1: row is an ElementRow, n the number of its
// elements. A body should copy the pointers that it takes from the row into variables of its own,
// so that they are in registers.
template <class T, int N, class Body>
HWY_INLINE void for_each_piece(const Elements<N>& at, const Pieces& pieces, int64_t first,
                               int64_t last, const Body& body) {
  RowCursor<Rows<N>, N> cursor(at.rows, first / pieces.per_row);
  int64_t column = first % pieces.per_row * pieces.size;
  for (int64_t piece = first; piece < last; ++piece) {
    const int64_t left = at.length - column;
    const bool ends = left <= pieces.size;
    body(ElementRow<T, N>{at, cursor, column}, ends ? left : pieces.size);
    column = ends ? 0 : column + pieces.size;
    if (ends) cursor.next();
  }
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace simd
}  // namespace opdock
#endif  // OPDOCK_SIMD_ELEMENTS_HPP_
