// Implements the activation ops: checks their arguments and hands the elements to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include "activation_checks.h"
#include "activation_cpu.h"

namespace activation {
namespace {

using opdock::RowTypes;

constexpr auto kForward =
    OPDOCK_KERNEL_FAMILY("activation::forward", RowTypes, opdock::KernelNumbers<0, 1>);
constexpr auto kForwardJoined =
    OPDOCK_KERNEL_FAMILY("activation::forward_joined", RowTypes, opdock::KernelNumbers<0, 1>);

// act(x + bias), or with `up` act(x) * up.
struct Arguments {
  Activation act;
  Tensor x;
  OptionalTensor x_bias, up, up_bias;
  void* data[kForwardTensors] = {};  // where rows begin, as for make_elements()
};

void compute(Call& call, Tensor out, const Arguments& of) {
  opdock::check_rows(out, "output 0");
  if (out.numel() == 0) return;
  ForwardParams params = {};
  params.act = of.act;
  params.gated = of.up.has_value();
  params.at = opdock::make_elements<kForwardTensors>({out, of.x, of.x_bias, of.up, of.up_bias},
                                                     out.size(-1), of.data);
  if (!call.is_cpu()) {
    const bool joined = opdock::join_outputs(&params.at, out.dtype().bytes());
    const auto& kernel = joined ? kForwardJoined : kForward;
    return opdock::launch_elements(call, kernel(out.dtype(), params.gated), params.at, params);
  }
  const ForwardJob job = {out.dtype(), Pieces(params.at.length), params};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(forward);
  opdock::run_pieces(call, params.at.rows.count, job.pieces,
                     [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

void plan_biased(Plan& plan, Tensor x, Tensor bias) {
  opdock::check_first_rows(plan, x, "x");
  opdock::check_row_vector(bias, "bias", x, "x", x.size(-1));
  plan.output(x.like());
}
void run_biased(Call& call, Results results, Activation act, Tensor x, Tensor bias) {
  compute(call, results[0], {act, x, bias, {}, {}});
}
template <Activation Act>
void run_bias(Call& call, Results results, Tensor x, Tensor bias) {
  run_biased(call, results, Act, x, bias);
}
void plan_bias_gelu(Plan& plan, Tensor x, Tensor bias, std::string_view approximate) {
  gelu(approximate);
  plan_biased(plan, x, bias);
}
void run_bias_gelu(Call& call, Results results, Tensor x, Tensor bias,
                   std::string_view approximate) {
  run_biased(call, results, gelu(approximate), x, bias);
}

void plan_silu(Plan& plan, Tensor x) {
  opdock::check_first_rows(plan, x, "x");
  plan.output(x.like());
}
void run_silu(Call& call, Results results, Tensor x) {
  compute(call, results[0], {kSilu, x, {}, {}, {}});
}

void plan_silu_mul(Plan& plan, Tensor gate, Tensor up) {
  opdock::check_first_rows(plan, gate, "gate");
  opdock::check_rows_like(up, "up", gate, "gate");
  plan.output(gate.like());
}
void run_gated(Call& call, Results results, Activation act, Tensor gate, Tensor up) {
  compute(call, results[0], {act, gate, {}, up, {}});
}
void run_silu_mul(Call& call, Results results, Tensor gate, Tensor up) {
  run_gated(call, results, kSilu, gate, up);
}
void plan_gelu_mul(Plan& plan, Tensor gate, Tensor up, std::string_view approximate) {
  gelu(approximate);
  plan_silu_mul(plan, gate, up);
}
void run_gelu_mul(Call& call, Results results, Tensor gate, Tensor up,
                  std::string_view approximate) {
  run_gated(call, results, gelu(approximate), gate, up);
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
void run_halves(Call& call, Results results, Activation act, Tensor x, OptionalTensor bias) {
  // The gate is the second half.
  Arguments of = {act, x, bias, x, bias};
  of.data[kX] = opdock::second_half(x);
  of.data[kXBias] = opdock::second_half(bias);
  compute(call, results[0], of);
}
void run_geglu(Call& call, Results results, Tensor x, OptionalTensor bias,
               std::string_view approximate) {
  run_halves(call, results, gelu(approximate), x, bias);
}
void run_swiglu(Call& call, Results results, Tensor x, OptionalTensor bias) {
  run_halves(call, results, kSilu, x, bias);
}

}  // namespace
}  // namespace activation

OPDOCK_OP(bias_add, activation::plan_biased, nullptr, activation::run_bias<activation::kIdentity>)
OPDOCK_OP(bias_relu, activation::plan_biased, nullptr, activation::run_bias<activation::kRelu>)
OPDOCK_OP(bias_gelu, activation::plan_bias_gelu, nullptr, activation::run_bias_gelu)
OPDOCK_OP(silu, activation::plan_silu, nullptr, activation::run_silu)
OPDOCK_OP(silu_mul, activation::plan_silu_mul, nullptr, activation::run_silu_mul)
OPDOCK_OP(gelu_mul, activation::plan_gelu_mul, nullptr, activation::run_gelu_mul)
OPDOCK_OP(geglu, activation::plan_geglu, nullptr, activation::run_geglu)
OPDOCK_OP(swiglu, activation::plan_swiglu, nullptr, activation::run_swiglu)
