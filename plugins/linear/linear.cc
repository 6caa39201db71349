// Implements linear: checks its arguments and hands the product to opdock.gemm/1.
// SPDX-License-Identifier: Apache-2.0
#include "product.h"

namespace linear {
namespace {

void plan_linear(Plan& plan, Tensor x, Tensor weight, OptionalTensor bias, OptionalTensor residual,
                 OptionalTensor weight_scale, std::string_view activation, bool transposed) {
  check_input(x, "x");
  const Weight of = {weight, transposed, weight_scale};
  check_weight(of, "weight", "weight_scale", x, x.size(-1));
  check_row_vector(bias, "bias", x, "x", of.outputs());
  const opdock::Layout result = x.like().with_size(-1, of.outputs());
  const Buffer out(x, of.outputs(), nullptr);
  if (residual) {
    check(*residual, "residual").same_dtype_as(x, "x").same_shape_as(out.tensor());
    check_forward(*residual, "residual");
  }
  const Product product = {x, of, bias, residual, activation_of(activation)};
  plan.workspace(product.workspace_bytes(plan, out.tensor()));
  plan.output(result);
}

void run_linear(Call& call, Results results, Tensor x, Tensor weight, OptionalTensor bias,
                OptionalTensor residual, OptionalTensor weight_scale, std::string_view activation,
                bool transposed) {
  const Tensor out = results[0];
  opdock::check_rows(out, "output 0");
  Product{x, {weight, transposed, weight_scale}, bias, residual, activation_of(activation)}.run(
      call, out, call.workspace(), call.workspace_bytes());
}

}  // namespace
}  // namespace linear

OPDOCK_OP(linear, linear::plan_linear, linear::prepare_products, linear::run_linear)
