// Implements layer_norm, rms_norm and the variants that normalise a sum: checks their arguments and
// hands the rows to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include "norm_rows.h"

namespace layernorm {

namespace {

void normalise(Call& call, const NormTask& norm) {
  if (norm.x.numel() == 0) return;
  Params params = make_params(norm);
  call.is_cpu() ? run_on_cpu(call, norm, params) : launch_norm(call, norm, &params);
}

void plan_layer_norm(Plan& plan, Tensor x, OptionalTensor, OptionalTensor, double eps) {
  check_numbers(plan, x, eps);
  plan.output(x.like());
}

void run_layer_norm(Call& call, Results outputs, Tensor x, OptionalTensor weight,
                    OptionalTensor bias, double eps) {
  normalise(
      call,
      {.x = x, .weight = weight, .bias = bias, .eps = eps, .centred = true, .out = outputs[0]});
}

void plan_add_layer_norm(Plan& plan, Tensor x, Tensor, OptionalTensor, OptionalTensor, double eps) {
  check_numbers(plan, x, eps);
  plan.output(x.like());
  plan.output(x.like());
}

void run_add_layer_norm(Call& call, Results outputs, Tensor x, Tensor residual,
                        OptionalTensor weight, OptionalTensor bias, double eps) {
  normalise(call, {x, residual, std::nullopt, weight, bias, eps, true, outputs[0], outputs[1]});
}

void plan_bias_add_layer_norm(Plan& plan, Tensor x, Tensor, Tensor, OptionalTensor, OptionalTensor,
                              double eps, bool with_sum) {
  check_numbers(plan, x, eps);
  plan.output(x.like());
  if (with_sum) plan.output(x.like());
}

void run_bias_add_layer_norm(Call& call, Results outputs, Tensor x, Tensor residual,
                             Tensor input_bias, OptionalTensor weight, OptionalTensor bias,
                             double eps, bool) {
  normalise(call,
            {x, residual, input_bias, weight, bias, eps, true, outputs[0], outputs.optional(1)});
}

void plan_rms_norm(Plan& plan, Tensor x, OptionalTensor, double eps) {
  plan_layer_norm(plan, x, {}, {}, eps);
}

void run_rms_norm(Call& call, Results outputs, Tensor x, OptionalTensor weight, double eps) {
  normalise(call, {.x = x, .weight = weight, .eps = eps, .centred = false, .out = outputs[0]});
}

void plan_add_rms_norm(Plan& plan, Tensor x, Tensor residual, OptionalTensor, double eps) {
  plan_add_layer_norm(plan, x, residual, {}, {}, eps);
}

void run_add_rms_norm(Call& call, Results outputs, Tensor x, Tensor residual, OptionalTensor weight,
                      double eps) {
  normalise(call,
            {x, residual, std::nullopt, weight, std::nullopt, eps, false, outputs[0], outputs[1]});
}

}  // namespace
}  // namespace layernorm

OPDOCK_OP(layer_norm, layernorm::plan_layer_norm, nullptr, layernorm::run_layer_norm)
OPDOCK_OP(add_layer_norm, layernorm::plan_add_layer_norm, nullptr, layernorm::run_add_layer_norm)
OPDOCK_OP(bias_add_layer_norm, layernorm::plan_bias_add_layer_norm, nullptr,
          layernorm::run_bias_add_layer_norm)
OPDOCK_OP(rms_norm, layernorm::plan_rms_norm, nullptr, layernorm::run_rms_norm)
OPDOCK_OP(add_rms_norm, layernorm::plan_add_rms_norm, nullptr, layernorm::run_add_rms_norm)
