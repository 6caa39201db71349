// The ops of this plugin on a GPU: one kernel for all, with a parameter for what to add up, since
// memory access takes longer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/elementwise.cuh"
#include "residual_params.cuh"

namespace residual {

using namespace opdock;

// Adds the piece to the sums.
template <typename T, int Size>
OPDOCK_DEVICE void add(const Packed<T>& piece, float (&sum)[Size]) {
  float more[Size];
  to_floats(piece, more);
  OPDOCK_UNROLL
  for (int k = 0; k < Size; ++k) sum[k] += more[k];
}

template <class T>
OPDOCK_KERNEL(kElementThreads)
combine(Params p) {
  using In = TensorList<kHidden, kResidual, kAttention, kBias, kOtherBias>;
  for_elements<T, In, TensorList<kOut>>(
      p.at, [&](const Packed<T>(&in)[In::kCount], Packed<T>(&out)[1]) {
        constexpr int kSize = vector_size<T>;
        float hidden[kSize], sum[kSize];
        to_floats(in[0], hidden);
        to_floats(in[1], sum);
        // The branch is the same for all threads.
        if (p.kind == kWeighted) {
          float weight[kSize], other[kSize];
          to_floats(in[3], weight);
          to_floats(in[4], other);
          OPDOCK_UNROLL
          for (int k = 0; k < kSize; ++k)
            hidden[k] = opdock::fma(hidden[k], weight[k], sum[k] * other[k]);
        } else {
          if (p.kind == kInside) add(in[2], sum);
          if (p.kind == kOutside) add(in[2], hidden);
          if (p.at.data[kBias]) add(in[3], sum);
          if (p.at.data[kOtherBias]) add(in[4], sum);
          OPDOCK_UNROLL
          for (int k = 0; k < kSize; ++k) hidden[k] = opdock::fma(sum[k], p.factor, hidden[k]);
        }
        from_floats(hidden, &out[0]);
      });
}

}  // namespace residual
