// Counts the step of Adam and of LAMB, and computes what depends on its number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adam_params.cuh"
#include "lists.cuh"

namespace adam {

// Counts the step, unless it is to be skipped; returns the numbers that it needs. One thread of all
// calls this.
OPDOCK_DEVICE Current begin_step(const Begin& p) {
  Current current = {};
  if (p.found_inf != nullptr && *p.found_inf != 0) {
    current.is_skipped = 1;
    return current;
  }
  const float step = *p.step + 1;
  *p.step = step;
  const double lr = p.lr != nullptr ? static_cast<double>(*p.lr) : p.lr_number;
  const Schedule now = make_schedule(lr, p.beta1, p.beta2, p.eps, p.weight_decay,
                                     static_cast<opdock::int64_t>(step));
  current.rate = optimizer::factor_of(now.rate);
  current.keep = optimizer::factor_of(now.keep);
  current.eps = static_cast<float>(now.eps);
  current.scale = p.grad_scale != nullptr ? *p.grad_scale : 1.0f;
  return current;
}

}  // namespace adam
