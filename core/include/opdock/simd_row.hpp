// opdock/simd_row.hpp: for CPU kernels over rows, in a plugin's simd_sources: passes over a row
// that keep several vectors in flight, and sums and maxima over a row.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_SIMD_ROW_HPP_
#define OPDOCK_SIMD_ROW_HPP_

#include "opdock/simd.hpp"

namespace opdock {
namespace simd {
namespace OPDOCK_SIMD_LEVEL {

// Rows are processed in blocks of this many elements, 64 vectors for each accumulator. One block of
// a longer row stays in the first-level cache, and rounding errors of sums do not grow with the
// row's length.
template <class C>
inline constexpr int64_t kRowBlock = 256 * static_cast<int64_t>(hn::MaxLanes(FullTag<C>()));

// Iterates over the rows of several tensors, one after the other: opdock::Rows::locate() without
// its divisions, which take longer than a short row.
template <class Rows, int Tensors>
class RowCursor {
 public:
  RowCursor(const Rows& rows, int64_t row) : rows_(rows) {
    long long left = row;
    for (int i = rows.ndim - 1; i >= 0; --i) {
      at_[i] = i > 0 ? left % rows.size[i] : left;
      left /= i > 0 ? rows.size[i] : 1;
    }
    rows.locate(row, offset_);
  }
  // Returns the row's position in tensor t, in elements.
  HWY_INLINE long long offset(int t) const { return offset_[t]; }
  HWY_INLINE void next() {
    for (int i = rows_.ndim - 1; i >= 0; --i) {
      for (int t = 0; t < Tensors; ++t) offset_[t] += rows_.stride[t][i];
      if (++at_[i] < rows_.size[i] || i == 0) return;
      for (int t = 0; t < Tensors; ++t) offset_[t] -= at_[i] * rows_.stride[t][i];
      at_[i] = 0;
    }
  }

 private:
  const Rows& rows_;
  long long offset_[Tensors];
  long long at_[sizeof(Rows::size) / sizeof(Rows::size[0])];
};

// A pass calls its body with vectors of the two kinds below, which load and store elements. A
// WholeVector is a whole vector of type C, computed from elements of any T.
template <class C>
struct WholeVector {
  using D = FullTag<C>;
  using V = hn::VFromD<D>;

  template <class T>
  HWY_INLINE V load(const T* from) const {
    return simd::OPDOCK_SIMD_LEVEL::load(D(), from);
  }
  template <class T>
  HWY_INLINE void store(V value, T* to) const {
    simd::OPDOCK_SIMD_LEVEL::store(D(), value, to);
  }
  // Load and store where a whole vector has room, as in memory for values that are kept between
  // passes.
  HWY_INLINE V load_whole(const C* from) const { return hn::LoadU(D(), from); }
  HWY_INLINE void store_whole(V value, C* to) const { hn::StoreU(value, D(), to); }
  // Returns the value where there are elements, and `other` where there are none.
  HWY_INLINE V or_else(V value, C) const { return value; }
};

// The rest of a row, less than a vector. Accesses nothing behind the row. Lanes without an element
// are loaded as 0.
template <class C>
struct PartVector {
  using D = FullTag<C>;
  using V = hn::VFromD<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  int64_t count;

#if HWY_TARGET <= HWY_AVX3  // these targets load and store with a mask
  HWY_INLINE auto mask() const { return hn::FirstN(D(), static_cast<size_t>(count)); }
  HWY_INLINE V load(const C* from) const { return hn::MaskedLoad(mask(), D(), from); }
  HWY_INLINE void store(V value, C* to) const { hn::BlendedStore(value, mask(), D(), to); }

  template <class T>  // T has 16 bits
  HWY_INLINE V load(const T* from) const {
    const hn::Rebind<uint16_t, D> d;
    alignas(64) T part[kLanes];
    const auto elements = hn::FirstN(d, static_cast<size_t>(count));
    hn::Store(hn::MaskedLoad(elements, d, &from->bits), d, &part->bits);
    return simd::OPDOCK_SIMD_LEVEL::load(D(), part);
  }
  template <class T>
  HWY_INLINE void store(V value, T* to) const {
    const hn::Rebind<uint16_t, D> d;
    alignas(64) T part[kLanes];
    simd::OPDOCK_SIMD_LEVEL::store(D(), value, part);
    const auto elements = hn::FirstN(d, static_cast<size_t>(count));
    hn::BlendedStore(hn::Load(d, &part->bits), elements, d, &to->bits);
  }
#else
  template <class T>
  HWY_INLINE V load(const T* from) const {
    alignas(64) T part[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) part[i] = from[i];
    return simd::OPDOCK_SIMD_LEVEL::load(D(), part);
  }
  template <class T>
  HWY_INLINE void store(V value, T* to) const {
    alignas(64) T part[kLanes];
    simd::OPDOCK_SIMD_LEVEL::store(D(), value, part);
    for (int64_t i = 0; i < count; ++i) to[i] = part[i];
  }
#endif
  HWY_INLINE V load_whole(const C* from) const { return hn::LoadU(D(), from); }
  HWY_INLINE void store_whole(V value, C* to) const { hn::StoreU(value, D(), to); }
  HWY_INLINE V or_else(V value, C other) const {
    return hn::IfThenElse(hn::FirstN(D(), static_cast<size_t>(count)), value, hn::Set(D(), other));
  }
};

// How many vectors are in flight: each adds to an accumulator of its own.
inline constexpr int kRowSlots = 4;
template <int N>
struct RowSlot {
  static constexpr int kIndex = N;
};

// Calls body(vector, slot, i) for the vectors that make up elements [0, n), i the first one's
// index: vector is a WholeVector or, at the end, a PartVector; slot is a RowSlot. Unroll: 1 for a
// long body whose vectors do not wait for earlier ones.
template <class C, int Unroll = kRowSlots, class Body>
HWY_INLINE void for_row(int64_t n, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(FullTag<C>()));
  const WholeVector<C> whole;
  int64_t i = 0;
  if constexpr (Unroll == kRowSlots) {
    for (; i + kRowSlots * lanes <= n; i += kRowSlots * lanes) {
      body(whole, RowSlot<0>(), i);
      body(whole, RowSlot<1>(), i + lanes);
      body(whole, RowSlot<2>(), i + 2 * lanes);
      body(whole, RowSlot<3>(), i + 3 * lanes);
    }
  }
  for (; i + lanes <= n; i += lanes) body(whole, RowSlot<0>(), i);
  if (i < n) body(PartVector<C>{n - i}, RowSlot<0>(), i);
}

// Prefetches the cache line that begins at `from`, once for each line of a pass: memory that the
// next pass reads.
template <class C, class T, class Slot>
HWY_INLINE void prefetch(Slot, const T* from) {
  constexpr size_t kBytes = hn::MaxLanes(FullTag<C>()) * sizeof(T);
  if constexpr (Slot::kIndex * kBytes % 64 == 0) __builtin_prefetch(from);
}

// A sum of vectors, each added to the accumulator of the slot that it comes with. Use it for at
// most a block: its error is then some units in the last place of the sum of magnitudes.
template <class C>
class RowSum {
 public:
  template <class Slot>
  HWY_INLINE void add(Slot, hn::VFromD<FullTag<C>> value) {
    sum_[Slot::kIndex] = hn::Add(sum_[Slot::kIndex], value);
  }
  template <class Slot>
  HWY_INLINE void add_product(Slot, hn::VFromD<FullTag<C>> a, hn::VFromD<FullTag<C>> b) {
    sum_[Slot::kIndex] = hn::MulAdd(a, b, sum_[Slot::kIndex]);
  }
  template <class Slot>
  HWY_INLINE void add_square(Slot slot, hn::VFromD<FullTag<C>> value) {
    add_product(slot, value, value);
  }
  HWY_INLINE double total() const {
    const auto all = hn::Add(hn::Add(sum_[0], sum_[1]), hn::Add(sum_[2], sum_[3]));
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(FullTag<C>(), all)));
  }

 private:
  using V = hn::VFromD<FullTag<C>>;
  static HWY_INLINE V zero() { return hn::Zero(FullTag<C>()); }
  V sum_[kRowSlots] = {zero(), zero(), zero(), zero()};
};

// The maximum over the lanes of vectors, -infinity without any. Which value a NaN leads to is not
// defined.
template <class C>
class RowMaximum {
 public:
  template <class Slot>
  HWY_INLINE void add(Slot, hn::VFromD<FullTag<C>> value) {
    most_[Slot::kIndex] = hn::Max(most_[Slot::kIndex], value);
  }
  HWY_INLINE C total() const {
    const FullTag<C> d;
    alignas(64) C lane[hn::MaxLanes(FullTag<C>())];
    hn::Store(hn::Max(hn::Max(most_[0], most_[1]), hn::Max(most_[2], most_[3])), d, lane);
    // MaxOfLanes is not used, because on some targets it begins at the lowest finite number.
    C most = lane[0];
    for (size_t i = 1; i < hn::Lanes(d); ++i) most = lane[i] > most ? lane[i] : most;
    return most;
  }

 private:
  using V = hn::VFromD<FullTag<C>>;
  static HWY_INLINE V least() { return hn::Set(FullTag<C>(), static_cast<C>(-HUGE_VAL)); }
  V most_[kRowSlots] = {least(), least(), least(), least()};
};

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace simd
}  // namespace opdock
#endif  // OPDOCK_SIMD_ROW_HPP_
