// Adagrad over many tensors: each block updates a chunk of a tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adagrad_params.cuh"
#include "lists.cuh"

namespace adagrad {

using namespace optimizer;
using opdock::fma;
using opdock::sqrt;

struct Rule {
  static constexpr bool kReadsGrads = true, kWritesStates = true;
  static constexpr bool kWritesWeights = true, kAddsUp = false;
  const Params& p;
  float lr, scale;

  OPDOCK_DEVICE bool begin() {
    if (p.scalars.found_inf != nullptr && *p.scalars.found_inf != 0) return false;
    lr = p.scalars.lr != nullptr ? *p.scalars.lr : p.lr_number;
    scale = p.scalars.grad_scale != nullptr ? *p.scalars.grad_scale : 1.0f;
    return true;
  }
  OPDOCK_DEVICE void step(float& weight, float grad, float (&state)[1]) const {
    if (p.scalars.grad_scale != nullptr) grad /= scale;
    grad *= p.sign;
    if (p.weight_decay != 0) grad = fma(p.weight_decay, weight, grad);
    state[0] = fma(grad, grad, state[0]);
    weight = fma(-lr, grad / (sqrt(state[0]) + p.eps), weight);
  }
};

template <class T>
OPDOCK_KERNEL(kThreads)
update(Params p) {
  update_lists<T>(p.lists, Rule{p, 0.0f, 1.0f});
}

}  // namespace adagrad
