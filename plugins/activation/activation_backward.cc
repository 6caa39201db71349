// Implements the gradients of the activation ops: checks their arguments and hands the elements to
// the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "activation_checks.h"
#include "activation_cpu.h"

namespace activation::gradients {
namespace {

using opdock::RowTypes;

constexpr auto kBackward = OPDOCK_KERNEL_FAMILY("activation::backward", RowTypes);
constexpr auto kBackwardSums =
    OPDOCK_KERNEL_FAMILY("activation::backward_sums", RowTypes, opdock::KernelNumbers<0, 1>);
constexpr uint32_t kTotals = OPDOCK_KERNEL_INDEX("activation::totals");

// The names are those of BackwardTensor.
struct Arguments {
  Activation act;
  Tensor grad_x;
  OptionalTensor grad_up;
  Tensor grad;
  OptionalTensor x, x_bias, up, up_bias;
  OptionalTensor grad_bias;           // gradients of all biases, in the order of rows
  void* data[kBackwardTensors] = {};  // where rows begin, as for make_elements()
};

void run_on_cpu(Call& call, const BackwardParams& params, const OptionalTensor& grad_bias,
                opdock::Dtype dtype) {
  const auto& at = params.at;
  BackwardJob job = {dtype, Pieces(at.length), params, call.workspace(), nullptr};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(backward);
  if (!grad_bias)
    return opdock::run_pieces(call, at.rows.count, job.pieces,
                              [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
  static const auto sums = OPDOCK_SIMD_CHOOSE(backward_sums);
  static const auto totals = OPDOCK_SIMD_CHOOSE(column_totals);
  job.totals = grad_bias->raw();
  call.parallel_for(params.sums.chunks.count * job.pieces.per_row, 1,
                    [&](int64_t begin, int64_t end) { sums(job, begin, end); });
  const int64_t grain = std::max<int64_t>(64, kElementGrain / params.sums.chunks.count);
  call.parallel_for(grad_bias->numel(), grain,
                    [&](int64_t begin, int64_t end) { totals(job, begin, end); });
}

// Sets the sums to 0, their value for no rows.
void zero(Call& call, Tensor sums) {
  if (sums.numel() == 0) return;
  if (!call.is_cpu()) return opdock::launch_column_totals(call, kTotals, {}, 0, {sums, {}});
  std::memset(sums.raw(), 0, static_cast<size_t>(sums.numel() * sums.dtype().bytes()));
}

void compute(Call& call, const Arguments& of) {
  opdock::check_rows(of.grad_x, "output 0");
  if (of.grad_up) opdock::check_rows(*of.grad_up, "output 1");
  if (of.grad_bias) check(*of.grad_bias, "output 1").contiguous();
  const opdock::Dtype dtype = of.grad.dtype();
  if (of.grad.numel() == 0) {
    if (of.grad_bias) zero(call, *of.grad_bias);
    return;
  }
  const int64_t length = of.grad.size(-1);
  BackwardParams params = {};
  params.act = of.act;
  params.gated = of.up.has_value();
  params.at = opdock::make_elements<kBackwardTensors>(
      {of.grad_x, of.grad_up, of.grad, of.x, of.x_bias, of.up, of.up_bias}, length, of.data,
      of.grad_bias.has_value());
  if (of.grad_bias) {
    // The bias of the half that geglu's gate multiplies comes first.
    const int64_t of_x = params.gated ? length : 0, of_up = params.gated ? 0 : -1;
    params.sums = opdock::make_column_sums<2>(call, params.at, dtype.bytes(), {of_x, of_up},
                                              of.grad_bias->numel());
  }
  if (call.is_cpu()) return run_on_cpu(call, params, of.grad_bias, dtype);
  if (!of.grad_bias) return opdock::launch_elements(call, kBackward(dtype), params.at, params);
  opdock::launch_column_chunks(call, kBackwardSums(dtype, params.gated), params.at, params.sums,
                               params);
  opdock::launch_column_totals(call, kTotals, {call.workspace(), nullptr}, params.sums.chunks.count,
                               {of.grad_bias, {}});
}

void plan_bias_add(Plan& plan, Tensor grad) {
  opdock::check_first_rows(plan, grad, "grad");
  plan.output(grad.like());
  plan.output(opdock::Layout(grad.dtype(), {grad.size(-1)}));
  opdock::plan_column_sums(&plan, grad, grad.size(-1), 1);
}
void run_bias_add(Call& call, Results results, Tensor grad) {
  compute(call, {kIdentity, results[0], {}, grad, {}, {}, {}, {}, results[1]});
}

void plan_biased(Plan& plan, Tensor grad, Tensor x, Tensor bias) {
  opdock::check_first_rows(plan, x, "x");
  opdock::check_row_vector(bias, "bias", x, "x", x.size(-1));
  opdock::check_rows_like(grad, "grad", x, "x");
  plan.output(x.like());
  plan.output(bias.like());
  opdock::plan_column_sums(&plan, x, x.size(-1), 1);
}
void run_biased(Call& call, Results results, Activation act, Tensor grad, Tensor x, Tensor bias) {
  compute(call, {act, results[0], {}, grad, x, bias, {}, {}, results[1]});
}
void run_bias_relu(Call& call, Results results, Tensor grad, Tensor x, Tensor bias) {
  run_biased(call, results, kRelu, grad, x, bias);
}
void plan_bias_gelu(Plan& plan, Tensor grad, Tensor x, Tensor bias, std::string_view approximate) {
  gelu(approximate);
  plan_biased(plan, grad, x, bias);
}
void run_bias_gelu(Call& call, Results results, Tensor grad, Tensor x, Tensor bias,
                   std::string_view approximate) {
  run_biased(call, results, gelu(approximate), grad, x, bias);
}

void plan_silu(Plan& plan, Tensor grad, Tensor x) {
  opdock::check_first_rows(plan, x, "x");
  opdock::check_rows_like(grad, "grad", x, "x");
  plan.output(x.like());
}
void run_silu(Call& call, Results results, Tensor grad, Tensor x) {
  compute(call, {kSilu, results[0], {}, grad, x, {}, {}, {}, {}});
}

void plan_silu_mul(Plan& plan, Tensor grad, Tensor gate, Tensor up) {
  opdock::check_first_rows(plan, gate, "gate");
  opdock::check_rows_like(grad, "grad", gate, "gate");
  opdock::check_rows_like(up, "up", gate, "gate");
  plan.output(gate.like());
  plan.output(up.like());
}
void run_gated(Call& call, Results results, Activation act, Tensor grad, Tensor gate, Tensor up) {
  compute(call, {act, results[0], results[1], grad, gate, {}, up, {}, {}});
}
void run_silu_mul(Call& call, Results results, Tensor grad, Tensor gate, Tensor up) {
  run_gated(call, results, kSilu, grad, gate, up);
}
void plan_gelu_mul(Plan& plan, Tensor grad, Tensor gate, Tensor up, std::string_view approximate) {
  gelu(approximate);
  plan_silu_mul(plan, grad, gate, up);
}
void run_gelu_mul(Call& call, Results results, Tensor grad, Tensor gate, Tensor up,
                  std::string_view approximate) {
  run_gated(call, results, gelu(approximate), grad, gate, up);
}

void plan_swiglu(Plan& plan, Tensor grad, Tensor x, OptionalTensor bias) {
  check_halves(plan, x);
  opdock::check_row_vector(bias, "bias", x, "x", x.size(-1));
  check(grad, "grad").same_dtype_as(x, "x").same_device_as(x, "x").ndim(x.ndim());
  for (int32_t dim = 0; dim + 1 < x.ndim(); ++dim) check(grad, "grad").size(dim, x.size(dim));
  check(grad, "grad").size(-1, x.size(-1) / 2);
  opdock::check_rows(grad, "grad");
  plan.output(x.like());
  if (!bias) return;
  plan.output(bias->like());
  opdock::plan_column_sums(&plan, grad, grad.size(-1), 2);
}
void plan_geglu(Plan& plan, Tensor grad, Tensor x, OptionalTensor bias,
                std::string_view approximate) {
  gelu(approximate);
  plan_swiglu(plan, grad, x, bias);
}
void run_halves(Call& call, Results results, Activation act, Tensor grad, Tensor x,
                OptionalTensor bias) {
  const OptionalTensor grad_bias = results.optional(1);
  const Tensor grad_x = results[0];
  // The gate is the second half.
  Arguments of = {act, grad_x, grad_x, grad, x, bias, x, bias, grad_bias};
  of.data[kGradX] = opdock::second_half(grad_x);
  of.data[kOfX] = opdock::second_half(x);
  of.data[kOfXBias] = opdock::second_half(bias);
  compute(call, of);
}
void run_geglu(Call& call, Results results, Tensor grad, Tensor x, OptionalTensor bias,
               std::string_view approximate) {
  run_halves(call, results, gelu(approximate), grad, x, bias);
}
void run_swiglu(Call& call, Results results, Tensor grad, Tensor x, OptionalTensor bias) {
  run_halves(call, results, kSilu, grad, x, bias);
}

}  // namespace
}  // namespace activation::gradients

OPDOCK_OP(bias_add_backward, activation::gradients::plan_bias_add, nullptr,
          activation::gradients::run_bias_add)
OPDOCK_OP(bias_relu_backward, activation::gradients::plan_biased, nullptr,
          activation::gradients::run_bias_relu)
OPDOCK_OP(bias_gelu_backward, activation::gradients::plan_bias_gelu, nullptr,
          activation::gradients::run_bias_gelu)
OPDOCK_OP(silu_backward, activation::gradients::plan_silu, nullptr, activation::gradients::run_silu)
OPDOCK_OP(silu_mul_backward, activation::gradients::plan_silu_mul, nullptr,
          activation::gradients::run_silu_mul)
OPDOCK_OP(gelu_mul_backward, activation::gradients::plan_gelu_mul, nullptr,
          activation::gradients::run_gelu_mul)
OPDOCK_OP(geglu_backward, activation::gradients::plan_geglu, nullptr,
          activation::gradients::run_geglu)
OPDOCK_OP(swiglu_backward, activation::gradients::plan_swiglu, nullptr,
          activation::gradients::run_swiglu)
