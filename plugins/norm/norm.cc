// layer_norm, rms_norm and the same of a sum: check their arguments and hand the rows to the
// kernels.
// SPDX-License-Identifier: Apache-2.0
#include "norm_rows.h"

namespace layernorm {

void check_arguments(const Plan& plan, Tensor x, const OptionalTensor& like_x,
                     const char* like_name, const OptionalTensor& weight,
                     const OptionalTensor& bias, double eps) {
  opdock::check_row_dtype(plan, x, "x");
  check(x, "x").ndim_at_least(1);
  opdock::check_rows(x, "x");
  if (like_x) {
    check(*like_x, like_name).same_dtype_as(x, "x").same_device_as(x, "x").same_shape_as(x, "x");
    opdock::check_rows(*like_x, like_name);
  }
  const std::pair<const OptionalTensor&, const char*> parameters[] = {{weight, "weight"},
                                                                      {bias, "bias"}};
  for (const auto& [parameter, name] : parameters)
    if (parameter)
      check(*parameter, name)
          .same_dtype_as(x, "x")
          .same_device_as(x, "x")
          .shape({x.size(-1)})
          .contiguous()
          .aligned(static_cast<uint64_t>(x.dtype().bytes()));
  check_eps(eps);
}

namespace {

using opdock::KernelNumbers;
using opdock::RowEdges;
using opdock::RowTypes;

constexpr opdock::RowKernels kAddNorm = {
    2, opdock::kHeavyRows,
    OPDOCK_KERNEL_FAMILY("layernorm::add::narrow_rows", RowTypes, KernelNumbers<2>, RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::add::block_rows", RowTypes, KernelNumbers<2, 4>, RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::add::long_rows", RowTypes)};

constexpr opdock::RowKernels kNarrowAddNorm = {2, opdock::kWidePairs, kAddNorm.narrow_rows,
                                               kAddNorm.block_rows, kAddNorm.long_rows};

// An output may be x or residual itself; otherwise it shares no memory with an argument.
void check_output(Tensor out, const char* name, Tensor x, const OptionalTensor& residual,
                  const OptionalTensor& weight, const OptionalTensor& bias) {
  opdock::check_rows(out, name);
  check(out, name).in_place_or_apart_from(x, "x");
  if (residual) check(out, name).in_place_or_apart_from(*residual, "residual");
  if (weight) check(out, name).no_overlap_with(*weight, "weight");
  if (bias) check(out, name).no_overlap_with(*bias, "bias");
}

void normalise(Call& call, Tensor x, const OptionalTensor& residual, const OptionalTensor& weight,
               const OptionalTensor& bias, double eps, bool centred, Tensor out,
               const OptionalTensor& sum) {
  check_output(out, "output 0", x, residual, weight, bias);
  if (sum) {
    check_output(*sum, "output 1", x, residual, weight, bias);
    check(*sum, "output 1").no_overlap_with(out, "output 0");
  }
  if (x.numel() == 0) return;
  const NormTask norm = {x, residual, weight, bias, eps, centred, out, sum};
  Params params = make_params(norm);
  if (call.is_cpu()) return run_on_cpu(call, norm, params);
  if (!residual) return launch_norm(call, norm, &params);
  const opdock::RowFit fit = fit_of(norm, params);
  const bool is_narrow = x.dtype().bytes() == 2;
  opdock::launch_rows(call, is_narrow ? kNarrowAddNorm : kAddNorm, x.dtype(), fit, &params);
}

void plan_layer_norm(Plan& plan, Tensor x, OptionalTensor weight, OptionalTensor bias, double eps) {
  check_arguments(plan, x, std::nullopt, "", weight, bias, eps);
  plan.output(x.like());
}

void run_layer_norm(Call& call, Results outputs, Tensor x, OptionalTensor weight,
                    OptionalTensor bias, double eps) {
  normalise(call, x, std::nullopt, weight, bias, eps, true, outputs[0], std::nullopt);
}

void plan_add_layer_norm(Plan& plan, Tensor x, Tensor residual, OptionalTensor weight,
                         OptionalTensor bias, double eps) {
  check_arguments(plan, x, residual, "residual", weight, bias, eps);
  plan.output(x.like());
  plan.output(x.like());
}

void run_add_layer_norm(Call& call, Results outputs, Tensor x, Tensor residual,
                        OptionalTensor weight, OptionalTensor bias, double eps) {
  normalise(call, x, residual, weight, bias, eps, true, outputs[0], outputs[1]);
}

void plan_rms_norm(Plan& plan, Tensor x, OptionalTensor weight, double eps) {
  plan_layer_norm(plan, x, weight, std::nullopt, eps);
}

void run_rms_norm(Call& call, Results outputs, Tensor x, OptionalTensor weight, double eps) {
  normalise(call, x, std::nullopt, weight, std::nullopt, eps, false, outputs[0], std::nullopt);
}

void plan_add_rms_norm(Plan& plan, Tensor x, Tensor residual, OptionalTensor weight, double eps) {
  plan_add_layer_norm(plan, x, residual, weight, std::nullopt, eps);
}

void run_add_rms_norm(Call& call, Results outputs, Tensor x, Tensor residual, OptionalTensor weight,
                      double eps) {
  normalise(call, x, residual, weight, std::nullopt, eps, false, outputs[0], outputs[1]);
}

}  // namespace
}  // namespace layernorm

OPDOCK_OP(layer_norm, layernorm::plan_layer_norm, nullptr, layernorm::run_layer_norm)
OPDOCK_OP(add_layer_norm, layernorm::plan_add_layer_norm, nullptr, layernorm::run_add_layer_norm)
OPDOCK_OP(rms_norm, layernorm::plan_rms_norm, nullptr, layernorm::run_rms_norm)
OPDOCK_OP(add_rms_norm, layernorm::plan_add_rms_norm, nullptr, layernorm::run_add_rms_norm)
