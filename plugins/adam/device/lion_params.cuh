// Parameters of Lion's kernel, filled in by lion.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lists_params.cuh"

namespace lion {

struct Params {
  optimizer::TensorLists<1, 86> lists;  // state: the average of gradients
  optimizer::Scalars scalars;           // without lr, rate and keep are used
  double weight_decay;
  optimizer::Factor<float> rate, keep;    // the learning rate; 1 - lr * weight_decay
  optimizer::Factor<float> beta1, beta2;  // beta1 weighs the average in this step's direction
  float rest1, rest2;                     // 1 - beta1, 1 - beta2
  float sign;                             // -1 to maximise
};
static_assert(sizeof(Params) <= 4096);

}  // namespace lion
