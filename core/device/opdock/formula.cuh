// Functions that the kernels of formulas share: where their tensors have the elements of a thread,
// loads and stores of several elements of any type, and reductions over a row.
// core/formula/device_source.cc writes the kernels, and core/formula/device_launch.cc fills in
// FormulaSpace.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/formula_math.cuh"
#include "opdock/formula_space.cuh"
#include "opdock/launch.cuh"
#include "opdock/vector.cuh"
#include "opdock/warp.cuh"

namespace opdock::formula {

using int8_t = signed char;
using int16_t = short;

// Elements in memory, and the numbers that they are computed as.
OPDOCK_DEVICE float from_element(half value) {
  return to_float(value);
}
OPDOCK_DEVICE float from_element(bfloat16 value) {
  return to_float(value);
}
template <class T>
OPDOCK_DEVICE T from_element(T value) {
  return value;
}
// Number is float for half and bfloat16, and T or int32_t otherwise.
template <class T>
struct ToElement {
  template <class Number>
  static OPDOCK_DEVICE T of(Number value) {
    return static_cast<T>(value);
  }
};
template <>
struct ToElement<half> {
  static OPDOCK_DEVICE half of(float value) { return from_float<half>(value); }
};
template <>
struct ToElement<bfloat16> {
  static OPDOCK_DEVICE bfloat16 of(float value) { return from_float<bfloat16>(value); }
};
// Rounds a number to an element's type and back.
template <class T>
OPDOCK_DEVICE float rounded(float value) {
  return from_element(ToElement<T>::of(value));
}

OPDOCK_DEVICE int64_t min_of(int64_t a, int b) {
  return a < b ? a : b;
}
template <class T>
OPDOCK_DEVICE T infinite() {
  return static_cast<T>(opdock::infinity());
}
template <class T>
OPDOCK_DEVICE T not_a_number() {
  return static_cast<T>(bits_float(0x7fc00000u));
}
// The number below (above) which there is none.
template <class T>
OPDOCK_DEVICE T highest() {
  if constexpr (static_cast<T>(0.5) != static_cast<T>(0)) {
    return infinite<T>();
  } else {
    return static_cast<T>(~(uint64_t{1} << (8 * sizeof(T) - 1)) &
                          (~uint64_t{0} >> (64 - 8 * sizeof(T))));
  }
}
template <class T>
OPDOCK_DEVICE T lowest() {
  if constexpr (static_cast<T>(0.5) != static_cast<T>(0)) {
    return -infinite<T>();
  } else {
    return -highest<T>() - 1;
  }
}

// V elements, which are loaded and stored by 16 bytes or, if they are fewer, at once.
template <class T, int V>
struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Pack {
  T at[V];
};
template <class T, int V>
OPDOCK_DEVICE void load_whole(const T* from, Pack<T, V>* to) {
  constexpr int kBytes = V * static_cast<int>(sizeof(T));
  constexpr int kUnit = kBytes < 16 ? kBytes : 16;
  union Both {
    OPDOCK_DEVICE Both() {}
    Unit<kUnit> unit[kBytes / kUnit];
    Pack<T, V> pack;
  } both;
  OPDOCK_UNROLL
  for (int i = 0; i < kBytes / kUnit; ++i)
    both.unit[i] = load_unit<kUnit>(reinterpret_cast<const char*>(from) + i * kUnit);
  *to = both.pack;
}
template <class T, int V>
OPDOCK_DEVICE void store_whole(T* to, const Pack<T, V>& from) {
  constexpr int kBytes = V * static_cast<int>(sizeof(T));
  constexpr int kUnit = kBytes < 16 ? kBytes : 16;
  union Both {
    OPDOCK_DEVICE Both() {}
    Unit<kUnit> unit[kBytes / kUnit];
    Pack<T, V> pack;
  } both;
  both.pack = from;
  OPDOCK_UNROLL
  for (int i = 0; i < kBytes / kUnit; ++i)
    store_unit<kUnit>(reinterpret_cast<char*>(to) + i * kUnit, both.unit[i]);
}

// Loads the `count` elements, at most V, from `column` on; the others are 0. row: the row's first
// element. step: elements between columns. whole: whether a whole vector of a step of 1 is aligned.
template <int V, class T>
OPDOCK_DEVICE Pack<T, V> load(const T* row, int64_t step, int64_t column, int count, bool whole) {
  Pack<T, V> pack = {};
  if (step == 0) {
    const T same = row[0];
    OPDOCK_UNROLL
    for (int k = 0; k < V; ++k) pack.at[k] = same;
  } else if (whole && step == 1 && count == V) {
    load_whole(row + column, &pack);
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < V; ++k)
      if (k < count) pack.at[k] = row[(column + k) * step];
  }
  return pack;
}
template <int V, class T>
OPDOCK_DEVICE void store(T* row, int64_t step, int64_t column, int count, bool whole,
                         const Pack<T, V>& pack) {
  if (whole && step == 1 && count == V) {
    store_whole(row + column, pack);
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < V; ++k)
      if (k < count) row[(column + k) * step] = pack.at[k];
  }
}

// A row's place in each tensor. Index: uint32_t if all rows and vectors can be counted in 31 bits,
// else int64_t.
template <class Index, int Dims>
struct RowPlace {
  int64_t row;
  Index index[Dims > 0 ? Dims : 1];  // in each dimension of the rows

  template <int Tensors>
  OPDOCK_DEVICE RowPlace(const FormulaSpace<Dims, Tensors>& p, Index at) : row(at) {
    OPDOCK_UNROLL
    for (int d = Dims - 1; d >= 0; --d) {
      const Index before = d > 0 ? p.size[d].quotient(at) : Index(0);
      index[d] = at - before * static_cast<Index>(p.size[d].divisor);
      at = before;
    }
  }
  // Returns the first element of this row of tensor t.
  template <class T, int Tensors>
  OPDOCK_DEVICE T* first(const FormulaSpace<Dims, Tensors>& p, int t) const {
    int64_t offset = 0;
    OPDOCK_UNROLL
    for (int d = 0; d < Dims; ++d) offset += static_cast<int64_t>(index[d]) * p.stride[t][d];
    return static_cast<T*>(p.data[t]) + offset;
  }
};

// The vector of an elementwise kernel's thread: its number among all vectors, row by row.
template <class Index>
OPDOCK_DEVICE Index vector_number() {
  return static_cast<Index>(block_index()) * static_cast<Index>(block_threads()) +
         static_cast<Index>(thread_index());
}

// ------------------------------------------------------------------------------ reductions

template <class T>
OPDOCK_DEVICE T exchange(T value, int mask) {
  if constexpr (sizeof(T) == 8) {
    union {
      T value;
      uint32_t word[2];
    } both;
    both.value = value;
    both.word[0] = shuffle_xor(both.word[0], mask);
    both.word[1] = shuffle_xor(both.word[1], mask);
    return both.value;
  } else {
    return shuffle_xor(value, mask);
  }
}

struct SumOf {
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return add(a, b);
  }
};
struct ProductOf {
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return mul(a, b);
  }
};
struct MaximumOf {
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return maximum(a, b);
  }
};
struct MinimumOf {
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return minimum(a, b);
  }
};

// The threads that share a row: a warp, or a block of at most 32 whole warps.
template <bool IsBlock>
struct RowTeam {
  OPDOCK_DEVICE int rank() const {
    return IsBlock ? thread_index() : thread_index() & (warp_width() - 1);
  }
  OPDOCK_DEVICE int size() const { return IsBlock ? block_threads() : warp_width(); }

  // Combines a number of each thread; all threads get the result. scratch: 64 int64_t of
  // shared memory. In a fixed order.
  template <class Op, class T>
  OPDOCK_DEVICE T reduce(T value, void* scratch) const {
    OPDOCK_UNROLL
    for (int mask = warp_width() / 2; mask > 0; mask /= 2)
      value = Op::combine(value, exchange(value, mask));
    if constexpr (IsBlock) {
      const int warps = block_threads() / warp_width();
      if (warps == 1) return value;
      T* const all = static_cast<T*>(scratch);
      block_barrier();  // others may still read an earlier reduction's numbers
      if ((thread_index() & (warp_width() - 1)) == 0) all[thread_index() / warp_width()] = value;
      block_barrier();
      value = all[0];
      for (int i = 1; i < warps; ++i) value = Op::combine(value, all[i]);
    }
    return value;
  }
};

// The largest number (the smallest one if Sign is -1) and the column of the first such. NaN counts
// as larger than all.
template <class T, int Sign>
struct Best {
  T value;
  int64_t column;

  OPDOCK_DEVICE void add(T other, int64_t at) {
    const bool is_first = column < 0;
    const bool is_better = Sign > 0 ? other > value : other < value;
    const bool is_equal = other == value || (other != other && value != value);
    const bool wins = value == value && (is_better || other != other);
    if (is_first || wins || (is_equal && at < column)) {
      value = other;
      column = at;
    }
  }
};
template <bool IsBlock, class T, int Sign>
OPDOCK_DEVICE int64_t best_column(const RowTeam<IsBlock>&, Best<T, Sign> best, void* scratch) {
  OPDOCK_UNROLL
  for (int mask = warp_width() / 2; mask > 0; mask /= 2) {
    const T other = exchange(best.value, mask);
    const int64_t at = exchange(best.column, mask);
    if (at >= 0) best.add(other, at);
  }
  if constexpr (IsBlock) {
    const int warps = block_threads() / warp_width();
    if (warps == 1) return best.column;
    T* const values = static_cast<T*>(scratch);
    int64_t* const columns = static_cast<int64_t*>(scratch) + 32;
    block_barrier();
    if ((thread_index() & (warp_width() - 1)) == 0) {
      values[thread_index() / warp_width()] = best.value;
      columns[thread_index() / warp_width()] = best.column;
    }
    block_barrier();
    best = {values[0], columns[0]};
    for (int i = 1; i < warps; ++i)
      if (columns[i] >= 0) best.add(values[i], columns[i]);
  }
  return best.column;
}

}  // namespace opdock::formula
