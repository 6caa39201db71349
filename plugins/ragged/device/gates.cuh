// Activations after a bias, and of pairs of adjacent columns of which the first is the gate.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gate_params.cuh"
#include "opdock/activation_math.cuh"
#include "opdock/elementwise.cuh"

namespace ragged {

using namespace opdock;

// A branch that all threads take alike costs a kernel that waits for memory nothing.
template <class T>
OPDOCK_DEVICE float activated(int activation, float x) {
  float sigmoid, rest;
  switch (activation) {
    case kRelu:
      return x < 0.0f ? 0.0f : x;
    case kGelu:
      return ActivationMath<T>::gelu(x);
    case kGeluTanh:
      return ActivationMath<T>::gelu_tanh(x, x * x, &sigmoid, &rest);
    case kSilu:
      return ActivationMath<T>::silu(x, &sigmoid);
    default:
      return x;
  }
}

template <class T>
OPDOCK_KERNEL(kElementThreads)
bias_activation(BiasParams p) {
  const bool has_bias = p.elements.data[2] != nullptr;
  for_elements<T, TensorList<1, 2>, TensorList<0>>(p.elements, [&](const auto& in, auto& out) {
    constexpr int kSize = vector_size<T>;
    float x[kSize], bias[kSize];
    to_floats(in[0], x);
    if (has_bias) {
      to_floats(in[1], bias);
      OPDOCK_UNROLL
      for (int i = 0; i < kSize; ++i) x[i] += bias[i];
    }
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) x[i] = activated<T>(p.activation, x[i]);
    from_floats(x, &out[0]);
  });
}

// Loads the elements of two adjacent pieces.
template <class T, class Piece>
OPDOCK_DEVICE void load_pairs(const T* from, float (&to)[2 * piece_size<Piece>], Piece piece) {
  constexpr int kSize = piece_size<Piece>;
  OPDOCK_UNROLL
  for (int half = 0; half < 2; ++half) {
    float own[kSize];
    load_piece(from + half * kSize, &piece);
    to_floats(piece, own);
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) to[half * kSize + i] = own[i];
  }
}

template <class T, class Piece>
OPDOCK_DEVICE void gate_piece(const PairParams& p, int64_t row, int64_t at, Piece piece) {
  constexpr int kSize = piece_size<Piece>;
  if (at >= p.columns) return;
  float x[2 * kSize], result[kSize];
  load_pairs(static_cast<const T*>(p.x) + row * p.x_row + 2 * at, x, piece);
  if (p.bias) {
    float bias[2 * kSize];
    load_pairs(static_cast<const T*>(p.bias) + 2 * at, bias, piece);
    OPDOCK_UNROLL
    for (int i = 0; i < 2 * kSize; ++i) x[i] += bias[i];
  }
  OPDOCK_UNROLL
  for (int i = 0; i < kSize; ++i) result[i] = activated<T>(p.activation, x[2 * i]) * x[2 * i + 1];
  from_floats(result, &piece);
  store_piece(static_cast<T*>(p.out) + row * p.columns + at, piece);
}

template <class T>
OPDOCK_KERNEL(kPairThreads)
gate_pairs(PairParams p) {
  pdl_wait_and_trigger();
  const int64_t row = block_index() / p.column_blocks;
  const int64_t part = block_index() - row * p.column_blocks;
  const int64_t at = part * kPairThreads + thread_index();
  if (p.by_vectors) {
    gate_piece<T>(p, row, at * vector_size<T>, Packed<T>{});
  } else {
    gate_piece<T>(p, row, at, Single<T>{});
  }
}

}  // namespace ragged
