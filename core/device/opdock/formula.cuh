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

// Unrolls the loop that follows by 4, so that the loads of several steps are under way at once.
#if defined(OPDOCK_SOFT)
#define OPDOCK_UNROLL_4
#else
#define OPDOCK_UNROLL_4 _Pragma("unroll 4")
#endif

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

// V elements as they are in memory, in units of 16 bytes or, if they are fewer, in one.
template <class T, int V>
struct Pack {
  static constexpr int kBytes = V * static_cast<int>(sizeof(T));
  static constexpr int kUnit = kBytes < 16 ? kBytes : 16;
  static constexpr int kUnits = kBytes / kUnit;
  union {
    Unit<kUnit> unit[kUnits];
    T at[V];
  };
  OPDOCK_DEVICE Pack() {}
};
// V elements as the numbers that a kernel computes with: float for half, int32_t for int8_t.
template <class Number, int V>
struct Numbers {
  Number at[V];
};

template <class T>
constexpr bool has_16_bits = false;
template <>
constexpr bool has_16_bits<half> = true;
template <>
constexpr bool has_16_bits<bfloat16> = true;

// Calls f(k, word) for each two 16-bit elements k and k + 1, which are in one word.
template <class T, int V, class F>
OPDOCK_DEVICE void for_each_pair(Pack<T, V>* pack, const F& f) {
  OPDOCK_UNROLL
  for (int i = 0; i < Pack<T, V>::kUnits; ++i) {
    constexpr int kWords = Pack<T, V>::kUnit / 4;
    OPDOCK_UNROLL
    for (int j = 0; j < kWords; ++j) {
      const int k = 2 * (i * kWords + j);
      if constexpr (kWords == 4) {
        f(k, pack->unit[i].word[j]);
      } else if constexpr (kWords == 2) {
        uint32_t word = static_cast<uint32_t>(pack->unit[i] >> (32 * j));
        f(k, word);
        pack->unit[i] = (pack->unit[i] & ~(uint64_t{0xffffffffu} << (32 * j))) |
                        static_cast<uint64_t>(word) << (32 * j);
      } else {
        f(k, pack->unit[i]);
      }
    }
  }
}

template <class Number, class T, int V>
OPDOCK_DEVICE Numbers<Number, V> to_numbers(Pack<T, V> pack) {
  Numbers<Number, V> numbers;
  if constexpr (has_16_bits<T>) {
    for_each_pair(&pack, [&](int k, uint32_t& word) {
      pair_to_floats(T{}, word, &numbers.at[k], &numbers.at[k + 1]);
    });
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < V; ++k) numbers.at[k] = static_cast<Number>(pack.at[k]);
  }
  return numbers;
}
template <class T, class Number, int V>
OPDOCK_DEVICE Pack<T, V> to_pack(const Numbers<Number, V>& numbers) {
  Pack<T, V> pack;
  if constexpr (has_16_bits<T>) {
    for_each_pair(&pack, [&](int k, uint32_t& word) {
      word = floats_to_pair(T{}, numbers.at[k], numbers.at[k + 1]);
    });
  } else {
    OPDOCK_UNROLL
    for (int k = 0; k < V; ++k) pack.at[k] = ToElement<T>::of(numbers.at[k]);
  }
  return pack;
}

template <int V, class T>
OPDOCK_DEVICE Pack<T, V> repeat(T value) {
  Pack<T, V> pack;
  OPDOCK_UNROLL
  for (int k = 0; k < V; ++k) pack.at[k] = value;
  return pack;
}

// Loads V elements, whose address is a multiple of the pack's unit.
template <int V, class T>
OPDOCK_DEVICE Pack<T, V> load_whole(const T* from) {
  using P = Pack<T, V>;
  P pack;
  OPDOCK_UNROLL
  for (int i = 0; i < P::kUnits; ++i)
    pack.unit[i] = load_unit<P::kUnit>(reinterpret_cast<const char*>(from) + i * P::kUnit);
  return pack;
}
template <class T, int V>
OPDOCK_DEVICE void store_whole(T* to, const Pack<T, V>& pack) {
  using P = Pack<T, V>;
  OPDOCK_UNROLL
  for (int i = 0; i < P::kUnits; ++i)
    store_unit<P::kUnit>(reinterpret_cast<char*>(to) + i * P::kUnit, pack.unit[i]);
}

// Loads the `count` elements, at most V, from `column` on; the others are 0. row: the row's first
// element. step: elements between columns. whole: whether a whole vector of a step of 1 is aligned.
// Column: an integer that holds each element's distance from the row's first.
template <int V, class T, class Column>
OPDOCK_DEVICE Pack<T, V> load(const T* row, int64_t step, Column column, int count, bool whole) {
  if (whole && step == 1 && count == V) return load_whole<V>(row + column);
  Pack<T, V> pack;
  const Column by = static_cast<Column>(step);
  OPDOCK_UNROLL
  for (int k = 0; k < V; ++k) pack.at[k] = k < count ? row[(column + k) * by] : T{};
  return pack;
}
template <int V, class T, class Column>
OPDOCK_DEVICE void store(T* row, int64_t step, Column column, int count, bool whole,
                         const Pack<T, V>& pack) {
  if (whole && step == 1 && count == V) {
    store_whole(row + column, pack);
    return;
  }
  const Column by = static_cast<Column>(step);
  OPDOCK_UNROLL
  for (int k = 0; k < V; ++k)
    if (k < count) row[(column + k) * by] = pack.at[k];
}

// A row's place in each tensor. Index: uint32_t if all rows, vectors and places of elements can be
// counted in 31 bits, else int64_t.
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
    Index offset = 0;
    OPDOCK_UNROLL
    for (int d = 0; d < Dims; ++d) offset += index[d] * static_cast<Index>(p.stride[t][d]);
    // Strides may be negative.
    if constexpr (sizeof(Index) == 4) {
      return static_cast<T*>(p.data[t]) + static_cast<int32_t>(offset);
    } else {
      return static_cast<T*>(p.data[t]) + offset;
    }
  }
};

constexpr int kTileThreads = 256;

// Elements between the rows of a tile in shared memory. Threads that write a column of a tile use
// different banks.
template <int Size, class T>
constexpr int tile_step = Size + (sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1);

// The tile of a block: Size rows, which differ only in the last dimension of the rows, and Size
// columns; fewer at the edges.
template <int Size, int Dims>
struct Tile {
  uint32_t row;  // the first one
  int column;
  int rows, columns;

  template <int Tensors>
  OPDOCK_DEVICE explicit Tile(const FormulaSpace<Dims, Tensors>& p) {
    const int64_t number = block_index_y() * grid_blocks() + block_index();
    const uint32_t length = static_cast<uint32_t>(p.size[Dims - 1].divisor);
    const uint32_t across = (static_cast<uint32_t>(p.columns) + Size - 1) / Size;
    const uint32_t down = (length + Size - 1) / Size;
    const uint32_t block = static_cast<uint32_t>(number), line = block / across;
    const uint32_t first = line % down * Size;
    row = line / down * length + first;
    column = static_cast<int>(block % across * Size);
    const bool is_there = row < static_cast<uint64_t>(p.rows);  // the grid may have more blocks
    rows = !is_there ? 0 : static_cast<int>(min_of(length - first, Size));
    columns = static_cast<int>(min_of(p.columns - column, Size));
  }

  // Loads the tile of tensor t, whose rows are adjacent, with 0 behind the last column, which whole
  // vectors read. All threads of the block take part.
  template <class T, int Tensors>
  OPDOCK_DEVICE void load(const FormulaSpace<Dims, Tensors>& p, int t, T* tile) const {
    if (rows == 0) return;
    const RowPlace<uint32_t, Dims> place(p, row);
    const T* const from = place.template first<T>(p, t);
    const int step = static_cast<int>(p.step[t]), below = thread_index() % Size;
    constexpr int threads = kTileThreads / Size;
    if (below >= rows) return;
    OPDOCK_UNROLL
    for (int i = 0; i < Size / threads; ++i) {
      const int beside = thread_index() / Size + i * threads;
      tile[below * tile_step<Size, T> + beside] =
          beside < columns ? from[below + (column + beside) * step] : T{};
    }
  }
  template <int V, class T>
  OPDOCK_DEVICE Pack<T, V> vector(const T* tile, int below, int beside) const {
    Pack<T, V> pack;
    OPDOCK_UNROLL
    for (int k = 0; k < V; ++k) pack.at[k] = tile[below * tile_step<Size, T> + beside + k];
    return pack;
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
  static OPDOCK_DEVICE T identity() {
    return T(0);
  }
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return add(a, b);
  }
};
struct ProductOf {
  template <class T>
  static OPDOCK_DEVICE T identity() {
    return T(1);
  }
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return mul(a, b);
  }
};
struct MaximumOf {
  template <class T>
  static OPDOCK_DEVICE T identity() {
    return lowest<T>();
  }
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return maximum(a, b);
  }
};
struct MinimumOf {
  template <class T>
  static OPDOCK_DEVICE T identity() {
    return highest<T>();
  }
  template <class T>
  static OPDOCK_DEVICE T combine(T a, T b) {
    return minimum(a, b);
  }
};

// The threads that share a row: a warp, or a block of at most 32 whole warps. Threads: of a block;
// 0 if they are known only at run time.
template <bool IsBlock, int Threads>
struct RowTeam {
  OPDOCK_DEVICE int rank() const {
    return IsBlock ? thread_index() : thread_index() & (warp_width() - 1);
  }
  OPDOCK_DEVICE int size() const {
    return !IsBlock ? warp_width() : Threads > 0 ? Threads : block_threads();
  }
  // Returns the first column of this thread's vector i. Each warp has adjacent vectors.
  template <class Column, int Vector, int Held>
  OPDOCK_DEVICE Column column(int i) const {
    const int lane = thread_index() & (warp_width() - 1);
    const int before = IsBlock ? (thread_index() - lane) * Held : 0;
    return static_cast<Column>(before + lane + i * warp_width()) * Vector;
  }

  // Combines a number of each thread; all threads get the result, which does not depend on their
  // order. scratch: 32 int64_t of shared memory, others than those of the reduction before.
  template <class Op, class T>
  OPDOCK_DEVICE T reduce(T value, long long* scratch) const {
    OPDOCK_UNROLL
    for (int mask = warp_width() / 2; mask > 0; mask /= 2)
      value = Op::combine(value, exchange(value, mask));
    if constexpr (IsBlock) {
      const int warps = size() / warp_width(), lane = thread_index() & (warp_width() - 1);
      if (warps == 1) return value;
      T* const all = reinterpret_cast<T*>(scratch);
      if (lane == 0) all[thread_index() / warp_width()] = value;
      block_barrier();
      value = lane < warps ? all[lane] : Op::template identity<T>();
      OPDOCK_UNROLL
      for (int mask = warp_width() / 2; mask > 0; mask /= 2)
        value = Op::combine(value, exchange(value, mask));
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
// Returns the best of all threads' numbers, in each of them.
template <bool IsBlock, int Threads, class T, int Sign>
OPDOCK_DEVICE Best<T, Sign> best_of(const RowTeam<IsBlock, Threads>& team, Best<T, Sign> best,
                                    void* scratch) {
  OPDOCK_UNROLL
  for (int mask = warp_width() / 2; mask > 0; mask /= 2) {
    const T other = exchange(best.value, mask);
    const int64_t at = exchange(best.column, mask);
    if (at >= 0) best.add(other, at);
  }
  if constexpr (IsBlock) {
    const int warps = team.size() / warp_width();
    if (warps == 1) return best;
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
  return best;
}
template <bool IsBlock, int Threads, class T, int Sign>
OPDOCK_DEVICE int64_t best_column(const RowTeam<IsBlock, Threads>& team, const Best<T, Sign>& best,
                                  void* scratch) {
  return best_of(team, best, scratch).column;
}

}  // namespace opdock::formula
