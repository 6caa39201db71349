// Declares the CPU kernels of all optimizers' steps, and the numbers that each of them needs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/lists_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace optimizer {

// The dtypes are float32, float16, bfloat16 or float64; if one is float64, all are.
struct Dtypes {
  opdock_dtype weight, grad, state, copy;
};

// The elements of one tensor.
struct Arrays {
  void* weight;
  const void* grad;
  void* state[2];  // the second one may be NULL
  void* copy;      // NULL, or receives the rounded weights
};

// All optimizers prepare gradients so before they use them.
struct Grads {
  double scale = 1;         // gradients are divided by it
  double sign = 1;          // -1 to maximise
  double weight_decay = 0;  // weight decay that is added to gradients

  bool is_plain() const { return scale == 1 && sign == 1 && weight_decay == 0; }
};

// A number for elements of float32 and smaller, and of float64.
struct Factors {
  Factor<float> narrow;
  Factor<double> wide;
};

struct AdamNumbers {
  Grads grads;
  Factors beta1, beta2;
  double rest1, rest2;  // 1 - beta1, 1 - beta2
  Factors rate, keep;   // those of Schedule
  double eps;           // eps of Schedule
};

struct LionNumbers {
  Grads grads;
  Factors beta1, beta2;
  double rest1, rest2;
  Factors rate, keep;  // the learning rate; 1 - lr * weight_decay
};

struct AdagradNumbers {
  Grads grads;
  double rate, eps;
};

struct LambNumbers {
  Grads grads;
  Factors beta1, beta2;
  double rest1, rest2;
  double eps, weight_decay;  // the decay is part of the change
  bool is_eps_inside_sqrt;
  double factor = 0;  // learning rate * trust ratio
};

// Each updates elements begin … end-1 of a tensor.
OPDOCK_SIMD_DECLARE(void step_adam(const Dtypes& dtypes, const AdamNumbers& numbers,
                                   const Arrays& arrays, int64_t begin, int64_t end))
OPDOCK_SIMD_DECLARE(void step_lion(const Dtypes& dtypes, const LionNumbers& numbers,
                                   const Arrays& arrays, int64_t begin, int64_t end))
OPDOCK_SIMD_DECLARE(void step_adagrad(const Dtypes& dtypes, const AdagradNumbers& numbers,
                                      const Arrays& arrays, int64_t begin, int64_t end))
// Updates the averages, and adds the squares of weights and of changes to sums[0] and sums[1].
OPDOCK_SIMD_DECLARE(void add_lamb_squares(const Dtypes& dtypes, const LambNumbers& numbers,
                                          const Arrays& arrays, int64_t begin, int64_t end,
                                          double* sums))
// Updates the weights.
OPDOCK_SIMD_DECLARE(void move_lamb(const Dtypes& dtypes, const LambNumbers& numbers,
                                   const Arrays& arrays, int64_t begin, int64_t end))

}  // namespace optimizer
