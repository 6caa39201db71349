// Elementwise ops on 16-byte vectors, one of each tensor a thread: an op says what becomes of a
// vector's elements, for any alignment and strides of its tensors' rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/elements.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"

namespace opdock {

// Which elements of a row one thread has: those of a vector, from element `first` on, which is
// negative where the row begins inside of its first vector.
struct Part {
  int64_t first, length;

  template <typename T>
  OPDOCK_DEVICE bool is_whole() const {
    return first >= 0 && first + vector_size<T> <= length;
  }
};

// 0 for elements that are not there.
template <typename T>
OPDOCK_DEVICE Packed<T> load_part(const T* row, const Part& part) {
  const T* const from = row + part.first;
  Packed<T> piece;
  if (part.is_whole<T>()) {
    load_side(row, part.first, part.length, misalignment(from), &piece);
    return piece;
  }
  fill_piece(T{}, &piece);
  OPDOCK_UNROLL
  for (int k = 0; k < vector_size<T>; ++k)
    if (part.first + k >= 0 && part.first + k < part.length) piece.set(k, from[k]);
  return piece;
}

template <typename T>
OPDOCK_DEVICE void store_part(T* row, const Part& part, const Packed<T>& piece) {
  T* const to = row + part.first;
  if (part.is_whole<T>() && misalignment(to) == 0) {
    store_piece(to, piece);
    return;
  }
  OPDOCK_UNROLL
  for (int k = 0; k < vector_size<T>; ++k)
    if (part.first + k >= 0 && part.first + k < part.length) to[k] = piece.get(k);
}

// Places of tensors among those of Elements.
template <int... Tensor>
struct Places {
  static constexpr int kCount = sizeof...(Tensor);
  static constexpr int kRoom = kCount > 0 ? kCount : 1;  // of an array with one for each
  static OPDOCK_DEVICE constexpr int at(int i) {
    const int all[] = {Tensor..., 0};
    return all[i];
  }
};

// This thread's part of one row's tensors: those that are read and those that are written.
template <typename T, typename In, typename Out, int Tensors>
struct RowPart {
  const Elements<Tensors>& p;
  long long offset[Tensors];  // of the row in each tensor
  Part part;

  OPDOCK_DEVICE T* row(int tensor) const {
    return static_cast<T*>(p.data[tensor]) + offset[tensor];
  }

  // By whole vectors or not. The first tensor of each kind is there; those of what is absent are
  // left as they are.
  template <int I = 0>
  OPDOCK_DEVICE void load(bool vectors, Packed<T> (&in)[In::kCount]) const {
    if constexpr (I < In::kCount) {
      constexpr int kTensor = In::at(I);
      if (I == 0 || p.data[kTensor]) {
        const T* const from = row(kTensor);
        if (vectors) {
          load_piece(from + part.first, &in[I]);
        } else {
          in[I] = load_part(from, part);
        }
      }
      load<I + 1>(vectors, in);
    }
  }
  template <int I = 0>
  OPDOCK_DEVICE void store(bool vectors, const Packed<T> (&out)[Out::kRoom]) const {
    if constexpr (I < Out::kCount) {
      constexpr int kTensor = Out::at(I);
      if (I == 0 || p.data[kTensor]) {
        if (vectors) {
          store_piece(row(kTensor) + part.first, out[I]);
        } else {
          store_part(row(kTensor), part, out[I]);
        }
      }
      store<I + 1>(vectors, out);
    }
  }
};

// Calls f(in, out) once, for the thread's elements: in has a Packed<T> of each tensor whose place
// In names, out of each that Out names; both begin with one that is never absent. No output is an
// input at other positions than its own. The kernel touches no memory before; its launch is
// launch_elements().
template <typename T, typename In, typename Out, int Tensors, typename F>
OPDOCK_DEVICE void for_elements(const Elements<Tensors>& p, const F& f) {
  launch_turn();
  const int64_t thread = block_index() * kElementThreads + thread_index();
  int64_t row = 0;
  if (p.rows.count > 1) {
    const uint64_t number = static_cast<uint64_t>(thread);
    row = p.slots == 1 ? thread : static_cast<int64_t>(multiply_high(number, p.factor) >> p.shift);
    if (row >= p.rows.count) return;
  }
  RowPart<T, In, Out, Tensors> at = {p, {}, {}};
  at.part = {(thread - row * p.slots) * vector_size<T>, p.length};
  p.rows.locate(row, at.offset);
  // So that the first output is written by whole vectors, also where its row is misaligned.
  if (!p.aligned) at.part.first -= misalignment(at.row(Out::at(0))) / static_cast<int>(sizeof(T));
  if (at.part.first >= p.length) return;
  const bool vectors = p.aligned && at.part.template is_whole<T>();
  Packed<T> in[In::kCount], out[Out::kCount];
  // Two copies of the loads: those of vectors stand without branches between them.
  if (vectors) {
    at.load(true, in);
  } else {
    at.load(false, in);
  }
  f(in, out);
  if (vectors) {
    at.store(true, out);
  } else {
    at.store(false, out);
  }
}

}  // namespace opdock
