// The lists of tensors that an optimizer's step updates: their checks, and the numbers of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <opdock/plugin.hpp>

#include "device/lists_params.cuh"

namespace optimizer {

using Tensors = opdock::List<opdock::Tensor>;
using OptionalTensor = std::optional<opdock::Tensor>;

// The lists of a call, each with a tensor for each of params.
struct Lists {
  const Tensors& params;
  const Tensors& grads;
  // The optimizer's averages of earlier gradients; the second one may be NULL.
  const Tensors* states[2];
  const char* state_names[2];  // the parameters of the schema
  const std::optional<Tensors>& masters;

  // The tensors that are updated.
  const Tensors& weights() const { return masters ? *masters : params; }
};

// Checks the lists: dtypes, shapes, strides, alignment. These functions throw an Error that names
// the wrong argument. is_cpu: whether the op runs on the CPU.
void check_lists(const Lists& lists, bool is_cpu);

// Checks a tensor of one float32, if there is one.
void check_one_number(const OptionalTensor& tensor, const char* name);
// Checks the three that every op takes.
void check_scalars(const OptionalTensor& lr_tensor, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf);

// usual: a value that people use, as text.
void check_not_negative(double number, const char* name, const char* usual);
void check_beta(double number, const char* name, const char* usual);

template <class T>
Factor<T> factor_of(double value) {
  const T high = std::nextafter(static_cast<T>(value), T(0));
  return {high, static_cast<T>(value - static_cast<double>(high))};
}

// Returns the number that a tensor on a GPU will have when the kernel reads it, as its address;
// NULL without a tensor.
inline const float* address_of(const OptionalTensor& tensor) {
  return tensor ? tensor->data<const float>() : nullptr;
}
// Returns the number that a tensor on the CPU has, or `otherwise` without a tensor.
inline double number_of(const OptionalTensor& tensor, double otherwise) {
  return tensor ? static_cast<double>(*tensor->data<const float>()) : otherwise;
}

}  // namespace optimizer
