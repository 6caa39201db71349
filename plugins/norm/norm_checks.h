// Argument checks that the norms and their gradients share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <opdock/row_op.hpp>

namespace layernorm {

using opdock::Call;
using opdock::check;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline void check_eps(double eps) {
  const bool is_good = std::isfinite(eps) && eps >= 0;
  opdock::check_number(eps, "eps", is_good, "a finite number that is not negative; 1e-5 is usual");
}

// like_x: another tensor that must be like x, and its name. Throws an Error that names the
// argument.
void check_arguments(const Plan& plan, Tensor x, const OptionalTensor& like_x,
                     const char* like_name, const OptionalTensor& weight,
                     const OptionalTensor& bias, double eps,
                     const OptionalTensor& input_bias = std::nullopt);

}  // namespace layernorm
