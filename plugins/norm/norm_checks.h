// What the norms and their gradients check of their arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/row_op.hpp>

namespace layernorm {

using opdock::Call;
using opdock::check;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using OptionalTensor = std::optional<Tensor>;

// like_x: another tensor that is x's like, and its name. Throws an Error that names the argument.
void check_arguments(const Plan& plan, Tensor x, const OptionalTensor& like_x,
                     const char* like_name, const OptionalTensor& weight,
                     const OptionalTensor& bias, double eps);

}  // namespace layernorm
