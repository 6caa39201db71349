// Adam and AdamW over many tensors: one thread computes what depends on the step's number, then
// each block updates a chunk of a tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adam_params.cuh"
#include "adam_step.cuh"
#include "lists.cuh"

namespace adam {

using namespace optimizer;
using opdock::fma;
using opdock::sqrt;

// Launched with a single thread.
OPDOCK_KERNEL(1) begin(Begin p) {
  *p.current = begin_step(p);
}

struct Rule {
  static constexpr bool kReadsGrads = true, kWritesStates = true;
  static constexpr bool kWritesWeights = true, kAddsUp = false;
  const Params& p;
  Current now;

  OPDOCK_DEVICE bool begin() {
    now = *p.current;
    return now.is_skipped == 0;
  }
  OPDOCK_DEVICE void step(float& weight, float grad, float (&state)[2]) const {
    float &mean = state[0], &square = state[1];
    if (p.is_scaled) grad /= now.scale;
    grad *= p.sign;
    if (p.weight_decay != 0) grad = fma(p.weight_decay, weight, grad);
    mean = blend(p.beta1, mean, p.rest1, grad);
    square = blend(p.beta2, square, p.rest2 * grad, grad);
    const float change = mean / (sqrt(square) + now.eps);
    weight = blend(now.keep, weight, -now.rate.high, change, -now.rate.low * change);
  }
};

template <class T>
OPDOCK_KERNEL(kThreads)
update(Params p) {
  update_lists<T>(p.lists, Rule{p, {}});
}

}  // namespace adam
