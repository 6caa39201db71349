// Argument checks that the norms and their gradients share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <opdock/op.hpp>

namespace layernorm {

using namespace opdock::usual;

inline void check_eps(double eps) {
  const bool is_good = std::isfinite(eps) && eps >= 0;
  opdock::check_number(eps, "eps", is_good, "a finite number that is not negative; 1e-5 is usual");
}

// Checks what plugin.toml cannot say of the arguments. Throws an Error that names the argument.
inline void check_numbers(const Plan& plan, Tensor x, double eps) {
  opdock::check_row_dtype(plan, x, "x");
  check_eps(eps);
}

}  // namespace layernorm
