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

// Checks geglu's argument: [..., 2 L].
inline void check_halves(const Plan& plan, Tensor x) {
  opdock::check_first_rows(plan, x, "x");
  if (x.size(-1) % 2 == 0) return;
  throw opdock::Error(
      OPDOCK_INVALID_ARGUMENT,
      opdock::detail::concat("argument 'x': found shape ", x.shape_text(),
                             ", wanted an even size in the last dimension, two halves; pass both"));
}

}  // namespace activation
