// Elementwise ops whose outputs are one run of aligned vectors, but whose rows end inside vectors.
// Vectors of inputs are assembled from smaller units, each of which lies in one row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/elementwise.cuh"

namespace opdock {

// Loads a vector in units of `Bytes` bytes. Element k of the vector is element here + k of `from`
// if k is below `end`, and element next + k otherwise. Elements from `count` on are not read, and
// are 0.
template <int Bytes, typename T>
OPDOCK_DEVICE void load_units(const T* from, uint32_t here, uint32_t next, int end, int count,
                              Packed<T>* piece) {
  constexpr int kSize = Bytes / static_cast<int>(sizeof(T));
  union {
    Bytes16 bytes;
    Unit<Bytes> unit[16 / Bytes];
  } both = {};
  OPDOCK_UNROLL
  for (int k = 0; k < vector_size<T>; k += kSize) {
    const uint32_t at = (k < end ? here : next) + static_cast<uint32_t>(k);
    if (k < count) both.unit[k / kSize] = load_unit<Bytes>(from + at);
  }
  piece->bytes = both.bytes;
}

// Does what for_elements() does, for Elements that join_outputs() of opdock/elementwise_op.hpp has
// changed.
template <typename T, typename In, typename Out, int Tensors, typename F>
OPDOCK_DEVICE void for_joined_elements(const Elements<Tensors>& p, const F& f) {
  pdl_wait_and_trigger();
  const uint32_t thread = static_cast<uint32_t>(block_index()) * block_threads() +
                          static_cast<uint32_t>(thread_index());
  if (thread >= p.vectors) return;
  const uint32_t first = thread * vector_size<T>, length = static_cast<uint32_t>(p.length);
  const uint32_t row = multiply_high(first, static_cast<uint32_t>(p.factor)) >> p.shift;
  const int end = static_cast<int>((row + 1) * length - first);
  constexpr int kWhole = vector_size<T>;
  int count = kWhole;
  if (thread + 1 == p.vectors)
    count = static_cast<int>(static_cast<uint32_t>(p.rows.count) * length - first);
  Packed<T> in[In::kCount], out[Out::kCount];
  for_each_tensor<In>(p, [&](int tensor, int i) {
    const T* const from = static_cast<const T*>(p.data[tensor]);
    const uint32_t skip = p.skip[tensor], here = first + row * skip, next = here + skip;
    if (count < kWhole) {
      load_units<static_cast<int>(sizeof(T))>(from, here, next, end, count, &in[i]);
    } else if (skip == 0) {
      load_piece(from + first, &in[i]);
    } else if (p.unit == 8) {
      load_units<8>(from, here, next, end, kWhole, &in[i]);
    } else if (p.unit == 4) {
      load_units<4>(from, here, next, end, kWhole, &in[i]);
    } else if constexpr (sizeof(T) == 2) {
      load_units<2>(from, here, next, end, kWhole, &in[i]);
    }
  });
  f(in, out);
  for_each_tensor<Out>(p, [&](int tensor, int i) {
    T* const to = static_cast<T*>(p.data[tensor]) + first;
    if (count == kWhole) return store_piece(to, out[i]);
    OPDOCK_UNROLL
    for (int k = 0; k < kWhole; ++k)
      if (k < count) to[k] = out[i].get(k);
  });
}

}  // namespace opdock
