// Checks the arguments of the ops that join the branches of a layer; plugin.toml has their
// formulas.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <opdock/row_op.hpp>

namespace residual {
namespace {

using opdock::Error;
using opdock::Plan;
using opdock::Tensor;
using opdock::detail::concat;
using OptionalTensor = std::optional<Tensor>;

void plan_residual_add(Plan& plan, Tensor hidden, Tensor residual, OptionalTensor attention,
                       OptionalTensor bias, OptionalTensor attention_bias, std::string_view form,
                       double divisor) {
  opdock::check_first_rows(plan, hidden, "hidden");
  opdock::check_rows_like(residual, "residual", hidden, "hidden");
  opdock::check_rows_like(attention, "attention", hidden, "hidden");
  opdock::check_row_vector(bias, "bias", hidden, "hidden", hidden.size(-1));
  opdock::check_row_vector(attention_bias, "attention_bias", hidden, "hidden", hidden.size(-1));
  if (!(divisor > 0) || !std::isfinite(divisor))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'divisor': found ", divisor,
                       ", wanted a number above 0: among how many devices the layer is split"));
  const bool is_post = form == "post_norm";
  if (!is_post && form != "pre_norm" && form != "parallel")
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'form': found \"", form,
                       "\", wanted \"pre_norm\", \"post_norm\" or \"parallel\""));
  const auto refuse = [&](const char* name) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name, "': found one, wanted none with form=\"post_norm\", ",
                       "which does not add it; leave it out or choose another form"));
  };
  if (is_post && attention) refuse("attention");
  if (is_post && attention_bias) refuse("attention_bias");
  if (is_post && divisor != 1) refuse("divisor");
  if (!is_post && !attention)
    throw Error(
        OPDOCK_INVALID_ARGUMENT,
        concat("argument 'attention': found None, wanted a tensor of the shape of 'hidden', ",
               "which form=\"", form, "\" adds; pass it or choose \"post_norm\""));
  plan.output(hidden.like());
}

void plan_vector_add(Plan& plan, Tensor a, Tensor b, double) {
  opdock::check_first_rows(plan, a, "a");
  opdock::check_rows_like(b, "b", a, "a");
  plan.output(a.like());
}

void plan_moe_res_matmul(Plan& plan, Tensor residual, Tensor coef, Tensor output) {
  opdock::check_first_rows(plan, residual, "residual");
  opdock::check_row_vector(coef, "coef", residual, "residual", 2 * residual.size(-1));
  opdock::check_rows_like(output, "output", residual, "residual");
  plan.output(residual.like());
}

}  // namespace
}  // namespace residual

OPDOCK_PLAN(residual_add, residual::plan_residual_add)
OPDOCK_PLAN(vector_add, residual::plan_vector_add)
OPDOCK_PLAN(moe_res_matmul, residual::plan_moe_res_matmul)
