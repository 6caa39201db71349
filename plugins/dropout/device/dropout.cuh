// Dropout of contiguous tensors. Each thread has groups of consecutive elements, which are whole
// blocks of random numbers and whole 16-byte vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dropout_params.cuh"
#include "opdock/device.cuh"
#include "opdock/packed.cuh"

namespace dropout {

using namespace opdock;

// A group's elements as they lie in memory: whole vectors.
template <class T>
struct Raw {
  using Number = float;  // type in which elements are multiplied
  static constexpr int kSize = vector_size<T>;
  Packed<T> piece;

  OPDOCK_DEVICE void load(const T* from) { load_piece(from, &piece); }
  OPDOCK_DEVICE void store(T* to) const { store_piece(to, piece); }
  OPDOCK_DEVICE T get(int i) const { return piece.get(i); }
  OPDOCK_DEVICE void set(int i, T value) { piece.set(i, value); }
  OPDOCK_DEVICE void to_numbers(Number (&out)[kSize]) const { to_floats(piece, out); }
  OPDOCK_DEVICE void from_numbers(const Number (&values)[kSize]) { from_floats(values, &piece); }
};
template <>
struct Raw<double> {
  using Number = double;
  static constexpr int kSize = 4;
  double at[kSize];

  OPDOCK_DEVICE void load(const double* from) {
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; i += 2) {
      const Vector<double> vector = load_vector(from + i);
      at[i] = vector.at[0];
      at[i + 1] = vector.at[1];
    }
  }
  OPDOCK_DEVICE void store(double* to) const {
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; i += 2) store_vector(to + i, Vector<double>{{at[i], at[i + 1]}});
  }
  OPDOCK_DEVICE double get(int i) const { return at[i]; }
  OPDOCK_DEVICE void set(int i, double value) { at[i] = value; }
  OPDOCK_DEVICE void to_numbers(Number (&out)[kSize]) const {
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) out[i] = at[i];
  }
  OPDOCK_DEVICE void from_numbers(const Number (&values)[kSize]) {
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) at[i] = values[i];
  }
};

// Consecutive elements from x[first] on, up to the end of x.
template <class T>
struct Group {
  static constexpr int kSize = Raw<T>::kSize;
  using Number = typename Raw<T>::Number;
  using Mask = Unit<kSize>;  // one byte per element

  Raw<T> raw;
  int count;  // number of elements before the end of x
  bool is_whole;

  // from: the tensor's elements, such as p.x.
  OPDOCK_DEVICE Group(const Params& p, const void* from, int64_t first) {
    const int64_t left = p.numel - first;
    count = left < kSize ? static_cast<int>(left) : kSize;
    is_whole = p.is_aligned && count == kSize;
    const T* const x = static_cast<const T*>(from) + first;
    if (is_whole) {
      raw.load(x);
      return;
    }
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) raw.set(i, i < count ? x[i] : T{});
  }

  // Multiplies the kept elements by the factor; the others become 0. Adds those of `addend`, if it
  // is not null. Only this step waits for the elements to arrive.
  OPDOCK_DEVICE void drop(const bool (&keep)[kSize], const Params& p,
                          const Raw<T>* addend = nullptr) {
    Number at[kSize], factor;
    if constexpr (sizeof(T) == 8) {
      factor = p.scale;
    } else {
      factor = p.float_scale;
    }
    raw.to_numbers(at);
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) at[i] = keep[i] ? at[i] * factor : Number{0};
    if (addend != nullptr) {
      Number other[kSize];
      addend->to_numbers(other);
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i) at[i] += other[i];
    }
    raw.from_numbers(at);
  }

  OPDOCK_DEVICE void store(const Params& p, int64_t first) const {
    T* const out = static_cast<T*>(p.out) + first;
    if (is_whole) return raw.store(out);
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i)
      if (i < count) out[i] = raw.get(i);
  }

  OPDOCK_DEVICE void load_mask(const Params& p, int64_t first, bool (&keep)[kSize]) const {
    const unsigned char* const mask = p.mask + first;
    if (is_whole) {
      const Mask word = p.threshold.is_reachable ? load_unit<kSize>(mask) : Mask{0};
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i) keep[i] = (word >> 8 * i & 0xff) != 0;
    } else {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i)
        keep[i] = p.threshold.is_reachable && i < count && mask[i] != 0;
    }
  }

  OPDOCK_DEVICE void store_mask(const Params& p, int64_t first, const bool (&keep)[kSize]) const {
    unsigned char* const mask = p.mask + first;
    if (is_whole) {
      uint32_t words[kSize / 4] = {};
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i) words[i / 4] |= keep[i] ? 1u << i % 4 * 8 : 0u;
      Mask all = words[0];
      if constexpr (kSize == 8) all |= static_cast<Mask>(words[1]) << 32;
      store_unit<kSize>(mask, all);
    } else {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i)
        if (i < count) mask[i] = keep[i];
    }
  }
};

// first_element() returns the first element of this thread's first group, element_step() the
// distance to its next group.
template <int Size>
OPDOCK_DEVICE int64_t first_element() {
  return (block_index() * block_threads() + thread_index()) * Size;
}
template <int Size>
OPDOCK_DEVICE int64_t element_step() {
  return grid_blocks() * block_threads() * Size;
}

template <class T, bool HasResidual>
OPDOCK_DEVICE void drop_forward(const Params& p) {
  constexpr int kSize = Group<T>::kSize;
  const uint64_t seed = p.random.current_seed();
  for (int64_t i = first_element<kSize>(); i < p.numel; i += element_step<kSize>()) {
    Group<T> group(p, p.x, i);
    Raw<T> residual = {};
    if constexpr (HasResidual) residual = Group<T>(p, p.residual, i).raw;
    uint32_t number[kSize] = {};  // 0 is dropped where the threshold is not reachable
    if (p.threshold.is_reachable)
      random_numbers(seed, p.random.offset + static_cast<uint64_t>(i), number);
    bool keep[kSize];
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) keep[k] = number[k] >= p.threshold.least;
    group.drop(keep, p, HasResidual ? &residual : nullptr);
    group.store(p, i);
    group.store_mask(p, i, keep);
  }
}

template <class T>
OPDOCK_KERNEL(kThreads)
forward(Params p) {
  drop_forward<T, false>(p);
}

template <class T>
OPDOCK_KERNEL(kThreads)
forward_add(Params p) {
  drop_forward<T, true>(p);
}

template <class T>
OPDOCK_KERNEL(kThreads)
backward(Params p) {
  constexpr int kSize = Group<T>::kSize;
  for (int64_t i = first_element<kSize>(); i < p.numel; i += element_step<kSize>()) {
    Group<T> group(p, p.x, i);
    bool keep[kSize];
    group.load_mask(p, i, keep);
    group.drop(keep, p);
    group.store(p, i);
  }
}

}  // namespace dropout
