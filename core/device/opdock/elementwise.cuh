// Elementwise ops on 16-byte vectors, one of each tensor for each thread. An op defines what
// happens to the elements of a vector; this file handles any alignment and strides of its tensors'
// rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/elements.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"

namespace opdock {

// The elements of a row that one thread has: those of the vector that begins at element `first`,
// which is negative if the row begins inside its first vector.
struct Part {
  int64_t first, length;

  template <typename T>
  OPDOCK_DEVICE bool is_whole() const {
    return first >= 0 && first + vector_size<T> <= length;
  }
};

// Loads the part at `from`; elements outside of the row are 0.
template <typename T>
OPDOCK_DEVICE Packed<T> load_part(const T* from, const Part& part) {
  Packed<T> piece;
  if (part.is_whole<T>()) {
    load_operand(from - part.first, part.first, part.length, misalignment(from), &piece);
    return piece;
  }
  fill_piece(T{}, &piece);
  OPDOCK_UNROLL
  for (int k = 0; k < vector_size<T>; ++k)
    if (part.first + k >= 0 && part.first + k < part.length) piece.set(k, from[k]);
  return piece;
}

template <typename T>
OPDOCK_DEVICE void store_part(T* to, const Part& part, const Packed<T>& piece) {
  if (part.is_whole<T>() && misalignment(to) == 0) {
    store_piece(to, piece);
    return;
  }
  OPDOCK_UNROLL
  for (int k = 0; k < vector_size<T>; ++k)
    if (part.first + k >= 0 && part.first + k < part.length) to[k] = piece.get(k);
}

// A list of indices of tensors in Elements.
template <int... Tensor>
struct TensorList {
  static constexpr int kCount = sizeof...(Tensor);
  static constexpr int kRoom = kCount > 0 ? kCount : 1;  // size of an array with an entry for each
  static OPDOCK_DEVICE constexpr int at(int i) {
    const int all[] = {Tensor..., 0};
    return all[i];
  }
};

// Calls f(tensor, i) for each tensor of the list that is present: its index in Elements and its
// place i in the list, both constants. The first `Sure` tensors are always present.
template <typename List, int Sure = 1, int I = 0, int Tensors, typename F>
OPDOCK_DEVICE void for_each_tensor(const Elements<Tensors>& p, const F& f) {
  if constexpr (I < List::kCount) {
    if (I < Sure || p.data[List::at(I)]) f(List::at(I), I);
    for_each_tensor<List, Sure, I + 1>(p, f);
  }
}

// This thread's part of one row of all tensors, inputs and outputs.
template <typename T, int Tensors>
struct RowPart {
  const Elements<Tensors>& p;
  Part part;
  T* at[Tensors];  // where the part begins

  OPDOCK_DEVICE void locate(int64_t row) {
    long long offset[Tensors];
    p.rows.locate(row, offset);
    OPDOCK_UNROLL
    for (int t = 0; t < Tensors; ++t) at[t] = static_cast<T*>(p.data[t]) + offset[t] + part.first;
  }

  // Loads by whole vectors if `vectors`, else by elements where needed. The pieces of absent
  // tensors are left unchanged.
  template <typename In>
  OPDOCK_DEVICE void load(bool vectors, Packed<T> (&in)[In::kRoom]) const {
    for_each_tensor<In>(p, [&](int tensor, int i) {
      if (vectors) {
        load_piece(at[tensor], &in[i]);
      } else {
        in[i] = load_part(at[tensor], part);
      }
    });
  }
  template <typename Out>
  OPDOCK_DEVICE void store(bool vectors, const Packed<T> (&out)[Out::kRoom]) const {
    for_each_tensor<Out>(p, [&](int tensor, int i) {
      if (vectors) {
        // store16_if() knows that this is global memory. The compiler does not, because several
        // code paths with different values of `at` meet here.
        store16_if(true, at[tensor], out[i].bytes);
      } else {
        store_part(at[tensor], part, out[i]);
      }
    });
  }
};

// Calls f(in, out) once, for the thread's elements: `in` has a Packed<T> of each tensor that In
// lists, `out` of each that Out lists; the first tensor of each list is never absent. An output may
// share memory with an input only at the same positions. The kernel touches no memory before this
// call; launch_elements() launches it.
template <typename T, typename In, typename Out, int Tensors, typename F>
OPDOCK_DEVICE void for_elements(const Elements<Tensors>& p, const F& f) {
  pdl_wait_and_trigger();
  RowPart<T, Tensors> row = {p, {}, {}};
  Packed<T> in[In::kCount], out[Out::kCount];
  // There are three copies of the loads, so that loads of vectors have no branches between them
  // and, in most cases, few instructions before them.
  bool vectors = p.vectors != 0;
  if (vectors) {
    const uint32_t thread = static_cast<uint32_t>(block_index()) * block_threads() +
                            static_cast<uint32_t>(thread_index());
    if (thread >= p.vectors) return;
    const uint32_t number = multiply_high(thread, static_cast<uint32_t>(p.factor)) >> p.shift;
    OPDOCK_UNROLL
    for (int t = 0; t < Tensors; ++t)
      row.at[t] =
          static_cast<T*>(p.data[t]) + uint64_t{thread + number * p.skip[t]} * vector_size<T>;
    row.template load<In>(true, in);
  } else {
    const int64_t thread = block_index() * block_threads() + thread_index();
    int64_t number = 0;
    if (p.rows.count > 1) {
      const uint64_t wide = static_cast<uint64_t>(thread);
      number =
          p.slots == 1 ? thread : static_cast<int64_t>(multiply_high(wide, p.factor) >> p.shift);
      if (number >= p.rows.count) return;
    }
    row.part = {(thread - number * p.slots) * vector_size<T>, p.length};
    row.locate(number);
    // Moves the part, so that the first output is written by whole vectors even if its row is
    // misaligned.
    if (!p.aligned) {
      const int before = misalignment(row.at[Out::at(0)]) / static_cast<int>(sizeof(T));
      row.part.first -= before;
      OPDOCK_UNROLL
      for (int t = 0; t < Tensors; ++t) row.at[t] -= before;
    }
    if (row.part.first >= p.length) return;
    vectors = p.aligned && row.part.template is_whole<T>();
    if (vectors) {
      row.template load<In>(true, in);
    } else {
      row.template load<In>(false, in);
    }
  }
  f(in, out);
  if (vectors) {
    row.template store<Out>(true, out);
  } else {
    row.template store<Out>(false, out);
  }
}

}  // namespace opdock
