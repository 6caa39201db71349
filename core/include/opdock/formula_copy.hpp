// opdock/formula_copy.hpp: copies of strided elements, for the compiled CPU code of formulas.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_FORMULA_COPY_HPP_
#define OPDOCK_FORMULA_COPY_HPP_

#include "opdock/simd.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

namespace hn = hwy::HWY_NAMESPACE;

// Transposes a block of as many rows and columns as 16 bytes have elements.
template <class T>
struct Block {
  static constexpr int kSize = 1;
  static HWY_INLINE void transpose(T* to, int64_t, const T* from, int64_t) { *to = *from; }
};
#if HWY_TARGET != HWY_SCALAR
template <class T>
using BlockTag = hn::CappedTag<T, 16 / sizeof(T)>;
// Interleaves vectors a and b as elements of type E.
template <class E, class V>
HWY_INLINE void interleave(V a, V b, V* low, V* high) {
  using T = hn::TFromV<V>;
  const BlockTag<T> d;
  const BlockTag<E> of;
  const auto x = hn::BitCast(of, a), y = hn::BitCast(of, b);
  *low = hn::BitCast(d, hn::InterleaveLower(of, x, y));
  *high = hn::BitCast(d, hn::InterleaveUpper(of, x, y));
}
template <>
struct Block<uint64_t> {
  static constexpr int kSize = 2;
  static HWY_INLINE void transpose(uint64_t* to, int64_t to_row, const uint64_t* from,
                                   int64_t from_column) {
    const BlockTag<uint64_t> d;
    const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_column);
    hn::StoreU(hn::InterleaveLower(d, a, b), d, to);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, to + to_row);
  }
};
template <>
struct Block<uint32_t> {
  static constexpr int kSize = 4;
  static HWY_INLINE void transpose(uint32_t* to, int64_t to_row, const uint32_t* from,
                                   int64_t from_column) {
    const BlockTag<uint32_t> d;
    hn::VFromD<BlockTag<uint32_t>> a[4], b[4], c[4];
    for (int i = 0; i < 4; ++i) a[i] = hn::LoadU(d, from + i * from_column);
    interleave<uint32_t>(a[0], a[1], &b[0], &b[1]);
    interleave<uint32_t>(a[2], a[3], &b[2], &b[3]);
    interleave<uint64_t>(b[0], b[2], &c[0], &c[1]);
    interleave<uint64_t>(b[1], b[3], &c[2], &c[3]);
    for (int i = 0; i < 4; ++i) hn::StoreU(c[i], d, to + i * to_row);
  }
};
template <>
struct Block<uint16_t> {
  static constexpr int kSize = 8;
  static HWY_INLINE void transpose(uint16_t* to, int64_t to_row, const uint16_t* from,
                                   int64_t from_column) {
    const BlockTag<uint16_t> d;
    hn::VFromD<BlockTag<uint16_t>> a[8], b[8], c[8];
    for (int i = 0; i < 8; ++i) a[i] = hn::LoadU(d, from + i * from_column);
    for (int i = 0; i < 8; i += 2) interleave<uint16_t>(a[i], a[i + 1], &b[i], &b[i + 1]);
    for (int i = 0; i < 8; i += 4) {
      interleave<uint32_t>(b[i], b[i + 2], &c[i], &c[i + 1]);
      interleave<uint32_t>(b[i + 1], b[i + 3], &c[i + 2], &c[i + 3]);
    }
    for (int i = 0; i < 4; ++i) interleave<uint64_t>(c[i], c[i + 4], &a[2 * i], &a[2 * i + 1]);
    for (int i = 0; i < 8; ++i) hn::StoreU(a[i], d, to + i * to_row);
  }
};
#endif

// Copies rows × columns elements from where a column is contiguous to where a row is. Strides are
// in elements.
template <class T>
inline void transpose(T* to, int64_t to_row, const T* from, int64_t from_column, int64_t rows,
                      int64_t columns) {
  constexpr int64_t kSize = Block<T>::kSize;
  // Columns are far from each other, where the processor does not fetch ahead by itself.
  constexpr int64_t kAhead = 64;
  int64_t c = 0;
  for (; c + kSize <= columns; c += kSize) {
    for (int64_t k = 0; k < kSize; ++k) __builtin_prefetch(from + (c + kAhead + k) * from_column);
    int64_t r = 0;
    for (; r + kSize <= rows; r += kSize)
      Block<T>::transpose(to + r * to_row + c, to_row, from + c * from_column + r, from_column);
    for (; r < rows; ++r)
      for (int64_t k = 0; k < kSize; ++k) to[r * to_row + c + k] = from[(c + k) * from_column + r];
  }
  for (; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) to[r * to_row + c] = from[c * from_column + r];
}

// Copies rows × columns elements. Strides are in elements.
template <class T>
inline void copy_elements(T* to, int64_t to_row, int64_t to_column, const T* from, int64_t from_row,
                          int64_t from_column, int64_t rows, int64_t columns) {
  if (rows > 1 && to_column == 1 && from_row == 1)
    return transpose(to, to_row, from, from_column, rows, columns);
  if (rows > 1 && to_row == 1 && from_column == 1)
    return transpose(to, to_column, from, from_row, columns, rows);
  const auto size = [](int64_t stride) { return stride < 0 ? -stride : stride; };
  // The shorter strides are those of the inner loop.
  if (size(from_row) + size(to_row) < size(from_column) + size(to_column)) {
    for (int64_t c = 0; c < columns; ++c) {
      T* const target = to + c * to_column;
      const T* const source = from + c * from_column;
      for (int64_t r = 0; r < rows; ++r) target[r * to_row] = source[r * from_row];
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* const target = to + r * to_row;
    const T* const source = from + r * from_row;
    for (int64_t c = 0; c < columns; ++c) target[c * to_column] = source[c * from_column];
  }
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_COPY_HPP_
