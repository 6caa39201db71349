// Implements norm_linear and norm_mlp: checks their arguments, normalises, and computes products of
// the result.
// SPDX-License-Identifier: Apache-2.0
#include "mlp.h"
#include "norm_rows.h"

namespace linear {
namespace {

// The arguments that determine how rows are normalised.
struct NormOf {
  OptionalTensor gamma, beta;
  bool centred;
  double eps;
};

NormOf norm_of(OptionalTensor gamma, OptionalTensor beta, std::string_view norm, double eps) {
  if (norm != "layer" && norm != "rms")
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'norm': found \"", norm, "\", wanted \"layer\" or \"rms\""));
  return {gamma, beta, norm == "layer", eps};
}

void check_norm(const NormOf& of) {
  if (of.beta && !of.centred) refuse("beta", "with norm=\"rms\", which adds none");
  layernorm::check_eps(of.eps);
}

// sum: receives x + residual + input_bias, which is then normalised; absent without a residual.
void normalise(const Call& call, const NormOf& of, Tensor x, Tensor out,
               const OptionalTensor& residual = {}, const OptionalTensor& input_bias = {},
               const OptionalTensor& sum = {}) {
  if (x.is_empty()) return;
  const layernorm::NormTask task = {x,      residual,   input_bias, of.gamma, of.beta,
                                    of.eps, of.centred, out,        sum};
  layernorm::Params params = layernorm::make_params(task);
  if (call.is_cpu()) return layernorm::run_on_cpu(call, task, params);
  layernorm::launch_norm(call, task, &params);
}

void plan_norm_linear(Plan& plan, Tensor x, Tensor weight, OptionalTensor bias,
                      OptionalTensor gamma, OptionalTensor beta, OptionalTensor weight_scale,
                      std::string_view norm, double eps, bool transposed) {
  check_input(x, "x");
  check_norm(norm_of(gamma, beta, norm, eps));
  const Weight of = {weight, transposed, weight_scale};
  check_weight(of, "weight", "weight_scale", x, x.size(-1));
  check_row_vector(bias, "bias", x, "x", of.outputs());
  const Buffer normed(x, x.size(-1), nullptr), out(x, of.outputs(), nullptr);
  plan.workspace(Product{normed.tensor(), of, bias}.workspace_bytes(plan, out.tensor()));
  plan.output(x.like().with_size(-1, of.outputs()));
  plan.output(x.like());
}

void run_norm_linear(Call& call, Results results, Tensor x, Tensor weight, OptionalTensor bias,
                     OptionalTensor gamma, OptionalTensor beta, OptionalTensor weight_scale,
                     std::string_view norm, double eps, bool transposed) {
  opdock::check_rows(results[0], "output 0");
  normalise(call, norm_of(gamma, beta, norm, eps), x, results[1]);
  Product{results[1], {weight, transposed, weight_scale}, bias}.run(
      call, results[0], call.workspace(), call.workspace_bytes());
}

void plan_norm_mlp(Plan& plan, Tensor x, Tensor weight1, Tensor weight2, OptionalTensor bias1,
                   OptionalTensor bias2, OptionalTensor residual, OptionalTensor input_bias,
                   OptionalTensor gamma, OptionalTensor beta, OptionalTensor weight1_scale,
                   OptionalTensor weight2_scale, std::string_view norm, double eps,
                   std::string_view activation, bool gated, bool gate_first, bool transposed) {
  const Mlp mlp = make_mlp(weight1, weight2, bias1, bias2, weight1_scale, weight2_scale, activation,
                           gated, gate_first, transposed);
  check_input(x, "x");
  check_norm(norm_of(gamma, beta, norm, eps));
  mlp.check_arguments(x);
  if (input_bias && !residual) refuse("input_bias", "without a residual, beside which it is added");
  if (residual) check_forward(*residual, "residual");
  const Buffer normed(x, x.size(-1), nullptr);
  plan.workspace(mlp.workspace_bytes(plan, normed.tensor()));
  plan.output(x.like().with_size(-1, mlp.second.outputs()));
  plan.output(x.like());
  if (residual) plan.output(x.like());
}

void run_norm_mlp(Call& call, Results results, Tensor x, Tensor weight1, Tensor weight2,
                  OptionalTensor bias1, OptionalTensor bias2, OptionalTensor residual,
                  OptionalTensor input_bias, OptionalTensor gamma, OptionalTensor beta,
                  OptionalTensor weight1_scale, OptionalTensor weight2_scale, std::string_view norm,
                  double eps, std::string_view activation, bool gated, bool gate_first,
                  bool transposed) {
  opdock::check_rows(results[0], "output 0");
  const OptionalTensor sum = results.optional(2);
  normalise(call, norm_of(gamma, beta, norm, eps), x, results[1], residual, input_bias, sum);
  const Mlp mlp = make_mlp(weight1, weight2, bias1, bias2, weight1_scale, weight2_scale, activation,
                           gated, gate_first, transposed);
  mlp.run(call, results[1], results[0]);
}

}  // namespace
}  // namespace linear

OPDOCK_OP(norm_linear, linear::plan_norm_linear, linear::prepare_products, linear::run_norm_linear)
OPDOCK_OP(norm_mlp, linear::plan_norm_mlp, linear::prepare_products, linear::run_norm_mlp)
