// A call of adam_ or adamw_, as the plugin's files pass it on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <opdock/plugin.hpp>

#include "device/adam_params.cuh"

namespace adam {

using Tensors = opdock::List<opdock::Tensor>;
using OptionalTensor = std::optional<opdock::Tensor>;

// The ops' arguments, in the order of their schemas.
struct Arguments {
  Tensors params, grads, exp_avgs, exp_avg_sqs;
  opdock::Tensor step;
  double lr, beta1, beta2, eps, weight_decay;
  bool maximize;
  std::optional<Tensors> masters;
  OptionalTensor lr_tensor, grad_scale, found_inf;

  // The tensors that are updated.
  const Tensors& weights() const { return masters ? *masters : params; }
};

template <class T>
Factor<T> factor_of(double value) {
  const T high = std::nextafter(static_cast<T>(value), T(0));
  return {high, static_cast<T>(value - static_cast<double>(high))};
}

// Checks all arguments; throws an Error that names the wrong one. is_cpu: whether the op runs on
// the CPU.
void check_arguments(const Arguments& arguments, bool is_cpu);

// Returns the size of the workspace that run_on_cpu and run_on_gpu need.
uint64_t workspace_bytes(const Arguments& arguments, bool is_cpu);

// is_decoupled: AdamW's weight decay.
void run_on_cpu(const opdock::Call& call, const Arguments& arguments, bool is_decoupled);
void run_on_gpu(const opdock::Call& call, const Arguments& arguments, bool is_decoupled);

}  // namespace adam
