// Declares the CPU kernel of the step, and the job that the plugin hands it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "device/adam_params.cuh"
#include "opdock/plugin.h"
#include "opdock/simd_level.hpp"

namespace adam {

template <class T>
struct Factors {
  Factor<T> beta1, beta2, rate, keep;  // the last two are those of Schedule
};

// Numbers that all elements share. The dtypes are float32, float16, bfloat16 or float64; if one is
// float64, all are.
struct Job {
  opdock_dtype weight, grad, average, copy;
  Factors<double> by;
  Factors<float> by_float;  // used where elements are not float64
  double rest1, rest2;      // 1 - beta1, 1 - beta2
  double eps;               // eps of Schedule
  double weight_decay;      // weight decay that is added to gradients, or 0
  double scale;             // gradients are divided by it
  double sign;              // -1 to maximise
};

// The elements of one tensor.
struct Arrays {
  void* weight;
  const void* grad;
  void* average;
  void* square;
  void* copy;  // NULL, or receives the rounded weights
};

OPDOCK_SIMD_DECLARE(void update(const Job& job, const Arrays& arrays, int64_t begin, int64_t end))

}  // namespace adam
