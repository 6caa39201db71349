// Checks the arguments of the activation ops; plugin.toml has their formulas.
// SPDX-License-Identifier: Apache-2.0
#include "activation_checks.h"

namespace activation {
namespace {

void plan_biased(Plan& plan, Tensor x, Tensor bias) {
  opdock::check_first_rows(plan, x, "x");
  opdock::check_row_vector(bias, "bias", x, "x", x.size(-1));
  plan.output(x.like());
}
void plan_bias_gelu(Plan& plan, Tensor x, Tensor bias, std::string_view approximate) {
  gelu(approximate);
  plan_biased(plan, x, bias);
}

void plan_silu(Plan& plan, Tensor x) {
  opdock::check_first_rows(plan, x, "x");
  plan.output(x.like());
}

void plan_silu_mul(Plan& plan, Tensor gate, Tensor up) {
  opdock::check_first_rows(plan, gate, "gate");
  opdock::check_rows_like(up, "up", gate, "gate");
  plan.output(gate.like());
}
void plan_gelu_mul(Plan& plan, Tensor gate, Tensor up, std::string_view approximate) {
  gelu(approximate);
  plan_silu_mul(plan, gate, up);
}

void plan_swiglu(Plan& plan, Tensor x, OptionalTensor bias) {
  check_halves(plan, x);
  opdock::check_row_vector(bias, "bias", x, "x", x.size(-1));
  plan.output(x.like().with_size(-1, x.size(-1) / 2));
}
void plan_geglu(Plan& plan, Tensor x, OptionalTensor bias, std::string_view approximate) {
  gelu(approximate);
  plan_swiglu(plan, x, bias);
}

}  // namespace
}  // namespace activation

OPDOCK_PLAN(bias_add, activation::plan_biased)
OPDOCK_PLAN(bias_relu, activation::plan_biased)
OPDOCK_PLAN(bias_gelu, activation::plan_bias_gelu)
OPDOCK_PLAN(silu, activation::plan_silu)
OPDOCK_PLAN(silu_mul, activation::plan_silu_mul)
OPDOCK_PLAN(gelu_mul, activation::plan_gelu_mul)
OPDOCK_PLAN(geglu, activation::plan_geglu)
OPDOCK_PLAN(swiglu, activation::plan_swiglu)
