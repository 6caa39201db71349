// Argument checks and definitions that the ops share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/elementwise_op.hpp>

#include "device/activation_params.cuh"

namespace activation {

using opdock::Call;
using opdock::check;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline Activation gelu(std::string_view approximate) {
  if (approximate == "none") return kGeluErf;
  if (approximate == "tanh") return kGeluTanh;
  throw opdock::Error(OPDOCK_INVALID_ARGUMENT,
                      opdock::detail::concat("argument 'approximate': found \"", approximate,
                                             "\", wanted \"none\" or \"tanh\""));
}

// Checks the argument whose dtype and device all others must have.
inline void check_first(const Plan& plan, Tensor x, const char* name) {
  opdock::check_row_dtype(plan, x, name);
  check(x, name).ndim_at_least(1);
  opdock::check_rows(x, name);
}
inline void check_like(Tensor tensor, const char* name, Tensor x, const char* x_name) {
  check(tensor, name).same_dtype_as(x, x_name).same_device_as(x, x_name).same_shape_as(x, x_name);
  opdock::check_rows(tensor, name);
}
inline void check_bias(const OptionalTensor& bias, Tensor x) {
  if (!bias) return;
  check(*bias, "bias")
      .same_dtype_as(x, "x")
      .same_device_as(x, "x")
      .shape({x.size(-1)})
      .contiguous()
      .aligned(static_cast<uint64_t>(x.dtype().bytes()));
}
// Checks geglu's argument: [..., 2 L].
inline void check_halves(const Plan& plan, Tensor x) {
  check_first(plan, x, "x");
  if (x.size(-1) % 2 == 0) return;
  throw opdock::Error(
      OPDOCK_INVALID_ARGUMENT,
      opdock::detail::concat("argument 'x': found shape ", x.shape_text(),
                             ", wanted an even size in the last dimension, two halves; pass both"));
}

// Returns where the second half of each row begins; null for an absent tensor.
inline void* second_half(const OptionalTensor& tensor) {
  if (!tensor || tensor->is_empty()) return nullptr;
  return static_cast<char*>(tensor->raw()) + tensor->size(-1) / 2 * tensor->dtype().bytes();
}

}  // namespace activation
