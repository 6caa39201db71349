// The gate, which is applied between products on a GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_math.cuh"
#include "linear_params.cuh"
#include "opdock/device.cuh"
#include "opdock/elementwise.cuh"

namespace linear {

using namespace opdock;

template <class T>
OPDOCK_KERNEL(kElementThreads)
gate(ElementParams p) {
  for_elements<T, TensorList<kFirst, kSecond>, TensorList<kResult>>(
      p.at, [&](const Packed<T>(&in)[2], Packed<T>(&out)[1]) {
        float first[vector_size<T>], second[vector_size<T>];
        to_floats(in[0], first);
        to_floats(in[1], second);
        activation::activate<T>(p.act, second);
        OPDOCK_UNROLL
        for (int k = 0; k < vector_size<T>; ++k) first[k] *= second[k];
        from_floats(first, &out[0]);
      });
}

}  // namespace linear
