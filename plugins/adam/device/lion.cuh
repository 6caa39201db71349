// Lion over many tensors: each block updates a chunk of a tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lion_params.cuh"
#include "lists.cuh"

namespace lion {

using namespace optimizer;

struct Rule {
  static constexpr bool kReadsGrads = true, kWritesStates = true;
  static constexpr bool kWritesWeights = true, kAddsUp = false;
  const Params& p;
  Factor<float> rate, keep;
  float scale;

  OPDOCK_DEVICE bool begin() {
    if (p.scalars.found_inf != nullptr && *p.scalars.found_inf != 0) return false;
    rate = p.rate;
    keep = p.keep;
    if (p.scalars.lr != nullptr) {
      const double lr = static_cast<double>(*p.scalars.lr);
      rate = factor_of(lr);
      keep = factor_of(1 - lr * p.weight_decay);
    }
    scale = p.scalars.grad_scale != nullptr ? *p.scalars.grad_scale : 1.0f;
    return true;
  }
  OPDOCK_DEVICE void step(float& weight, float grad, float (&state)[1]) const {
    if (p.scalars.grad_scale != nullptr) grad /= scale;
    grad *= p.sign;
    const float ahead = blend(p.beta1, state[0], p.rest1, grad);
    state[0] = blend(p.beta2, state[0], p.rest2, grad);
    // The sign; it is 0 of 0 and NaN of NaN.
    const float change = ahead > 0 ? 1.0f : ahead < 0 ? -1.0f : ahead;
    weight = blend(keep, weight, -rate.high, change, -rate.low * change);
  }
};

template <class T>
OPDOCK_KERNEL(kThreads)
update(Params p) {
  update_lists<T>(p.lists, Rule{p, {}, {}, 1.0f});
}

}  // namespace lion
