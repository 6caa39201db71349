// The gradients of the activations on a GPU: one kernel or, with sums over rows, two for all ops. A
// parameter selects the activation, which costs a memory-bound kernel nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_math.cuh"
#include "opdock/column_sums.cuh"
#include "opdock/elementwise.cuh"

namespace activation {

// Computes x + bias, or x without a bias.
template <typename T, int Size>
OPDOCK_DEVICE void load_sum(const Packed<T>& x, const Packed<T>& bias, bool biased,
                            float (&sum)[Size]) {
  to_floats(x, sum);
  if (!biased) return;
  float b[Size];
  to_floats(bias, b);
  OPDOCK_UNROLL
  for (int k = 0; k < Size; ++k) sum[k] += b[k];
}

// Turns grad, the gradient of act(x) * up, into that of x, and up into its own gradient.
template <typename T, int Size>
OPDOCK_DEVICE void differentiate_gated(int act, float (&x)[Size], float (&up)[Size],
                                       float (&grad)[Size]) {
  OPDOCK_UNROLL
  for (int k = 0; k < Size; ++k) {
    const float whole = grad[k];
    grad[k] *= up[k];
    up[k] = whole;
  }
  differentiate<T>(act, x, grad);
  OPDOCK_UNROLL
  for (int k = 0; k < Size; ++k) up[k] *= x[k];
}

// This kernel is for ops without biases. Many threads keep memory busy; with several tensors to
// read there are not enough registers for all of them.
template <class T>
OPDOCK_KERNEL_BLOCKS(kElementThreads, 3)
backward(BackwardParams p) {
  using In = TensorList<kGrad, kOfX, kOfUp>;
  using Out = TensorList<kGradX, kGradUp>;
  for_elements<T, In, Out>(p.at, [&](const Packed<T>(&in)[3], Packed<T>(&out)[2]) {
    float grad[vector_size<T>], x[vector_size<T>];
    to_floats(in[0], grad);
    to_floats(in[1], x);
    if (p.gated) {
      float up[vector_size<T>];
      to_floats(in[2], up);
      differentiate_gated<T>(p.act, x, up, grad);
      from_floats(up, &out[1]);
    } else {
      differentiate<T>(p.act, x, grad);
    }
    from_floats(grad, &out[0]);
  });
}

template <int Gated>
struct Backward;
template <>
struct Backward<0> {
  using In = TensorList<kGrad, kOfX>;
  using Side = TensorList<kOfXBias>;
  using Out = TensorList<kGradX>;
};
template <>
struct Backward<1> {
  using In = TensorList<kGrad, kOfX, kOfUp>;
  using Side = TensorList<kOfXBias, kOfUpBias>;
  using Out = TensorList<kGradX, kGradUp>;
};

// For ops with biases, whose gradients are sums over rows.
template <class T, int Gated>
OPDOCK_KERNEL_BLOCKS(kColumnThreads, 4 - Gated)
backward_sums(BackwardParams p) {
  using In = typename Backward<Gated>::In;
  using Side = typename Backward<Gated>::Side;
  using Out = typename Backward<Gated>::Out;
  for_column_chunks<T, In, Side, Out, Out::kCount>(
      p.at, p.sums,
      [&](int64_t, const Packed<T>(&in)[In::kCount], const Packed<T>(&side)[Side::kCount],
          Packed<T>(&out)[Out::kCount], float (&terms)[Out::kCount][vector_size<T>]) {
        float x[vector_size<T>] = {};
        to_floats(in[0], terms[0]);
        // bias_add's gradient needs no x.
        if (p.at.data[kOfX]) load_sum(in[1], side[0], p.at.data[kOfXBias], x);
        if constexpr (Gated != 0) {
          load_sum(in[2], side[1], p.at.data[kOfUpBias], terms[1]);
          differentiate_gated<T>(p.act, x, terms[1], terms[0]);
          from_floats(terms[1], &out[1]);
        } else {
          differentiate<T>(p.act, x, terms[0]);
        }
        from_floats(terms[0], &out[0]);
      });
}

OPDOCK_KERNEL(kTotalThreads)
totals(ColumnTotals p) {
  column_totals(p);
}

}  // namespace activation
