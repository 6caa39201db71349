// Parameters of adam's kernels, filled in by adam_gpu.cc, and arithmetic that the CPU shares.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lists_params.cuh"

namespace adam {

using optimizer::Factor;

// Numbers that depend on the number of the step, t. With s = sqrt(1 - beta2^t):
struct Schedule {
  double rate;  // lr / (1 - beta1^t) * s, so that averages of squares need not be divided by s * s
  double eps;   // eps * s
  double keep;  // factor of the weights: 1 - lr * weight_decay
};

OPDOCK_HOST_DEVICE double power(double base, long long exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

// Returns the square root of a number from 0 to 1 by Newton's method, which converges from above.
// Device code has no square root of a double, and this way all devices give the same result.
OPDOCK_HOST_DEVICE double square_root(double number) {
  double root = 1;
  for (double next = (1 + number) / 2; next < root; next = (root + number / root) / 2) root = next;
  return root;
}

// t: the step's number, from 1 on.
OPDOCK_HOST_DEVICE Schedule make_schedule(double lr, double beta1, double beta2, double eps,
                                          double weight_decay, long long t) {
  const double root = square_root(1 - power(beta2, t));
  return {lr / (1 - power(beta1, t)) * root, eps * root, 1 - lr * weight_decay};
}

// The numbers of a step that the elements' update needs. They are in the call's workspace, written
// by begin().
struct alignas(16) Current {
  Factor<float> rate, keep;
  float eps;
  float scale;       // gradients are divided by it
  float is_skipped;  // not 0: nothing is to be changed
  float unused;
};

struct Begin {
  float* step;
  const float* lr;          // NULL: lr_number
  const float* grad_scale;  // NULL: 1
  const float* found_inf;   // NULL: 0
  Current* current;
  double lr_number, beta1, beta2, eps;
  double weight_decay;  // decoupled decay of the weights
};

struct Params {
  optimizer::TensorLists<2, 76> lists;  // states: averages of gradients, and of their squares
  const Current* current;
  Factor<float> beta1, beta2;
  float rest1, rest2;  // 1 - beta1, 1 - beta2
  float weight_decay;  // weight decay that is added to gradients
  float sign;          // -1 to maximise
  bool is_scaled;      // whether there is a grad_scale
};
static_assert(sizeof(Params) <= 4096);

}  // namespace adam
