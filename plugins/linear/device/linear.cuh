// What stands between products on a GPU: the gate, and the sum that is normalised.
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
  for_elements<T, Places<kFirst, kSecond>, Places<kResult>>(
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

template <class T>
OPDOCK_KERNEL(kElementThreads)
add(ElementParams p) {
  for_elements<T, Places<kFirst, kSecond, kBias>, Places<kResult>>(
      p.at, [&](const Packed<T>(&in)[3], Packed<T>(&out)[1]) {
        float sum[vector_size<T>], more[vector_size<T>];
        to_floats(in[0], sum);
        to_floats(in[1], more);
        OPDOCK_UNROLL
        for (int k = 0; k < vector_size<T>; ++k) sum[k] += more[k];
        if (p.at.data[kBias]) {
          to_floats(in[2], more);
          OPDOCK_UNROLL
          for (int k = 0; k < vector_size<T>; ++k) sum[k] += more[k];
        }
        from_floats(sum, &out[0]);
      });
}

}  // namespace linear
