// Dropout of contiguous tensors; each thread has groups of consecutive elements, which are whole
// blocks of random numbers and whole 16-byte vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dropout_params.cuh"
#include "opdock/device.cuh"
#include "opdock/packed.cuh"

namespace dropout {

using namespace opdock;

template <class T>
struct NumberOf {
  using type = float;
};
template <>
struct NumberOf<double> {
  using type = double;
};

// Consecutive elements from x[first] on, as far as there are any, as numbers that are multiplied.
template <class T>
struct Group {
  static constexpr bool kIsDouble = sizeof(T) == 8;
  static constexpr int kSize = kIsDouble ? 4 : vector_size<T>;
  using Number = typename NumberOf<T>::type;
  using Mask = Unit<kSize>;  // a byte an element

  Number at[kSize];
  int count;  // how many of them there are
  bool is_whole;

  OPDOCK_DEVICE Group(const Params& p, int64_t first) {
    const int64_t left = p.numel - first;
    count = left < kSize ? static_cast<int>(left) : kSize;
    is_whole = p.is_aligned && count == kSize;
    const T* const x = static_cast<const T*>(p.x) + first;
    if (!is_whole) {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i) at[i] = i < count ? to_number(x[i]) : Number{0};
    } else if constexpr (kIsDouble) {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; i += 2) {
        const Vector<T> vector = load_vector(x + i);
        at[i] = vector.at[0];
        at[i + 1] = vector.at[1];
      }
    } else {
      Packed<T> piece;
      load_piece(x, &piece);
      to_floats(piece, at);
    }
  }

  // Multiplies what is kept by the factor; the others become 0.
  OPDOCK_DEVICE void drop(const bool (&keep)[kSize], double scale) {
    const Number factor = static_cast<Number>(scale);
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) at[i] = keep[i] ? at[i] * factor : Number{0};
  }

  OPDOCK_DEVICE void store(const Params& p, int64_t first) const {
    T* const out = static_cast<T*>(p.out) + first;
    if (!is_whole) {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i)
        if (i < count) out[i] = from_number(at[i]);
    } else if constexpr (kIsDouble) {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; i += 2) store_vector(out + i, Vector<T>{{at[i], at[i + 1]}});
    } else {
      Packed<T> piece;
      from_floats(at, &piece);
      store_piece(out, piece);
    }
  }

  OPDOCK_DEVICE void load_mask(const Params& p, int64_t first, bool (&keep)[kSize]) const {
    const unsigned char* const mask = p.mask + first;
    if (is_whole) {
      const Mask word = load_unit<kSize>(mask);
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i)
        keep[i] = p.threshold.is_reachable && (word >> 8 * i & 0xff) != 0;
    } else {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i)
        keep[i] = p.threshold.is_reachable && i < count && mask[i] != 0;
    }
  }

  OPDOCK_DEVICE void store_mask(const Params& p, int64_t first, const bool (&keep)[kSize]) const {
    unsigned char* const mask = p.mask + first;
    if (is_whole) {
      Mask word = 0;
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i) word |= static_cast<Mask>(keep[i]) << 8 * i;
      store_unit<kSize>(mask, word);
    } else {
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i)
        if (i < count) mask[i] = keep[i];
    }
  }

 private:
  static OPDOCK_DEVICE Number to_number(T value) {
    if constexpr (kIsDouble) {
      return value;
    } else {
      return to_float(value);
    }
  }
  static OPDOCK_DEVICE T from_number(Number value) {
    if constexpr (kIsDouble) {
      return value;
    } else {
      return from_float<T>(value);
    }
  }
};

// The first element of this thread's first group, and how far its next one is.
template <int Size>
OPDOCK_DEVICE int64_t first_element() {
  return (block_index() * block_threads() + thread_index()) * Size;
}
template <int Size>
OPDOCK_DEVICE int64_t element_step() {
  return grid_blocks() * block_threads() * Size;
}

template <class T>
OPDOCK_KERNEL(kThreads)
forward(Params p) {
  constexpr int kSize = Group<T>::kSize;
  const uint64_t seed = p.random.current_seed();
  for (int64_t i = first_element<kSize>(); i < p.numel; i += element_step<kSize>()) {
    Group<T> group(p, i);
    uint32_t number[kSize];
    random_numbers(seed, p.random.offset + static_cast<uint64_t>(i), number);
    bool keep[kSize];
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) keep[k] = p.threshold.keeps(number[k]);
    group.drop(keep, p.scale);
    group.store(p, i);
    group.store_mask(p, i, keep);
  }
}

template <class T>
OPDOCK_KERNEL(kThreads)
backward(Params p) {
  constexpr int kSize = Group<T>::kSize;
  for (int64_t i = first_element<kSize>(); i < p.numel; i += element_step<kSize>()) {
    Group<T> group(p, i);
    bool keep[kSize];
    group.load_mask(p, i, keep);
    group.drop(keep, p.scale);
    group.store(p, i);
  }
}

}  // namespace dropout
