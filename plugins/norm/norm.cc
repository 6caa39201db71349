// Implements layer_norm, rms_norm and the variants that normalise a sum: checks their arguments and
// hands the rows to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include "norm_rows.h"

namespace layernorm {

void check_arguments(const Plan& plan, Tensor x, const OptionalTensor& like_x,
                     const char* like_name, const OptionalTensor& weight,
                     const OptionalTensor& bias, double eps, const OptionalTensor& input_bias) {
  opdock::check_first_rows(plan, x, "x");
  opdock::check_rows_like(like_x, like_name, x, "x");
  opdock::check_row_vector(weight, "weight", x, "x", x.size(-1));
  opdock::check_row_vector(bias, "bias", x, "x", x.size(-1));
  opdock::check_row_vector(input_bias, "input_bias", x, "x", x.size(-1));
  check_eps(eps);
}

namespace {

// Checks an output, which may be x or residual itself; otherwise it shares no memory with an
// argument.
void check_output(Tensor out, const char* name, const NormTask& of) {
  opdock::check_rows(out, name);
  check(out, name).in_place_or_apart_from(of.x, "x");
  if (of.residual) check(out, name).in_place_or_apart_from(*of.residual, "residual");
  if (of.input_bias) check(out, name).no_overlap_with(*of.input_bias, "input_bias");
  if (of.weight) check(out, name).no_overlap_with(*of.weight, "weight");
  if (of.bias) check(out, name).no_overlap_with(*of.bias, "bias");
}

void normalise(Call& call, const NormTask& norm) {
  check_output(norm.out, "output 0", norm);
  if (norm.sum) {
    check_output(*norm.sum, "output 1", norm);
    check(*norm.sum, "output 1").no_overlap_with(norm.out, "output 0");
  }
  if (norm.x.numel() == 0) return;
  Params params = make_params(norm);
  call.is_cpu() ? run_on_cpu(call, norm, params) : launch_norm(call, norm, &params);
}

void plan_layer_norm(Plan& plan, Tensor x, OptionalTensor weight, OptionalTensor bias, double eps) {
  check_arguments(plan, x, std::nullopt, "", weight, bias, eps);
  plan.output(x.like());
}

void run_layer_norm(Call& call, Results outputs, Tensor x, OptionalTensor weight,
                    OptionalTensor bias, double eps) {
  normalise(
      call,
      {.x = x, .weight = weight, .bias = bias, .eps = eps, .centred = true, .out = outputs[0]});
}

void plan_add_layer_norm(Plan& plan, Tensor x, Tensor residual, OptionalTensor weight,
                         OptionalTensor bias, double eps) {
  check_arguments(plan, x, residual, "residual", weight, bias, eps);
  plan.output(x.like());
  plan.output(x.like());
}

void run_add_layer_norm(Call& call, Results outputs, Tensor x, Tensor residual,
                        OptionalTensor weight, OptionalTensor bias, double eps) {
  normalise(call, {x, residual, std::nullopt, weight, bias, eps, true, outputs[0], outputs[1]});
}

void plan_bias_add_layer_norm(Plan& plan, Tensor x, Tensor residual, Tensor input_bias,
                              OptionalTensor weight, OptionalTensor bias, double eps,
                              bool with_sum) {
  check_arguments(plan, x, residual, "residual", weight, bias, eps, input_bias);
  plan.output(x.like());
  if (with_sum) plan.output(x.like());
}

void run_bias_add_layer_norm(Call& call, Results outputs, Tensor x, Tensor residual,
                             Tensor input_bias, OptionalTensor weight, OptionalTensor bias,
                             double eps, bool) {
  normalise(call,
            {x, residual, input_bias, weight, bias, eps, true, outputs[0], outputs.optional(1)});
}

void plan_rms_norm(Plan& plan, Tensor x, OptionalTensor weight, double eps) {
  plan_layer_norm(plan, x, weight, std::nullopt, eps);
}

void run_rms_norm(Call& call, Results outputs, Tensor x, OptionalTensor weight, double eps) {
  normalise(call, {.x = x, .weight = weight, .eps = eps, .centred = false, .out = outputs[0]});
}

void plan_add_rms_norm(Plan& plan, Tensor x, Tensor residual, OptionalTensor weight, double eps) {
  plan_add_layer_norm(plan, x, residual, weight, std::nullopt, eps);
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
