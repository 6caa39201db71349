// layer_norm, rms_norm and the same of a sum: check their arguments and hand the rows to the
// kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "device/norm_params.cuh"
#include "norm_checks.h"
#include "norm_cpu.h"

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
  if (!std::isfinite(eps) || eps < 0)
    throw opdock::Error(
        OPDOCK_INVALID_ARGUMENT,
        opdock::detail::concat("argument 'eps': found ", eps,
                               ", wanted a finite number that is not negative; 1e-5 is usual"));
}

namespace {

using opdock::KernelNumbers;
using opdock::RowEdges;
using opdock::RowTypes;

constexpr opdock::RowKernels kNorm = {
    1, opdock::kHeavyRows,
    OPDOCK_KERNEL_FAMILY("layernorm::narrow_rows", RowTypes, KernelNumbers<2>, RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::block_rows", RowTypes, KernelNumbers<2, 4, 8>, RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::long_rows", RowTypes)};
// Of 16 bits.
constexpr opdock::RowKernels kNarrowNorm = {1, opdock::kWideRows, kNorm.narrow_rows,
                                            kNorm.block_rows, kNorm.long_rows};
constexpr opdock::RowKernels kOddNorm = {1, opdock::kOddRows, kNorm.narrow_rows, kNorm.block_rows,
                                         kNorm.long_rows};
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

void* raw(const OptionalTensor& tensor) {
  return tensor ? tensor->raw() : nullptr;
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
  Params params = {};
  params.x = x.raw();
  params.residual = raw(residual);
  params.weight = raw(weight);
  params.bias = raw(bias);
  params.out = out.raw();
  params.sum = raw(sum);
  params.length = x.size(-1);
  params.eps = static_cast<float>(eps);
  params.share = 1.0f / static_cast<float>(params.length);
  params.centred = centred;
  params.rows = opdock::make_rows<4>({x, residual, out, sum});
  if (!call.is_cpu()) {
    const opdock::RowFit fit = opdock::fit_of(params.rows, params.length, x.dtype().bytes(),
                                              {params.x, params.residual, params.out, params.sum},
                                              {params.weight, params.bias});
    const bool is_narrow = x.dtype().bytes() == 2, is_plain = fit == opdock::RowFit::kPlain;
    const auto launch = [&](const auto& kernels) {
      opdock::launch_rows(call, kernels, x.dtype(), fit, &params);
    };
    if (residual)
      launch(is_narrow ? kNarrowAddNorm : kAddNorm);
    else if (is_narrow)
      launch(is_plain ? kNarrowNorm : kOddNorm);
    else
      launch(kNorm);
    return;
  }
  const Job job = {x.dtype(), eps, params};
  using Kernel = void (*)(const Job&, int64_t, int64_t);
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(run);
  opdock::for_rows(call, params.rows.count, params.length,
                   [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
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
