// Parameters of Adagrad's kernel, filled in by adagrad.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lists_params.cuh"

namespace adagrad {

struct Params {
  optimizer::TensorLists<1, 86> lists;  // state: the sum of squared gradients
  optimizer::Scalars scalars;           // without lr, lr_number is used
  float lr_number, eps, weight_decay;
  float sign;  // -1 to maximise
};
static_assert(sizeof(Params) <= 4096);

}  // namespace adagrad
