// The gradients of the norms: check their arguments and hand the rows to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <opdock/elementwise_op.hpp>

#include "device/norm_params.cuh"
#include "norm_checks.h"
#include "norm_cpu.h"

namespace layernorm::backward {
namespace {

using opdock::RowEdges;
using opdock::RowTypes;

constexpr opdock::RowKernels kRows = {
    2, opdock::kHeavyRows,
    OPDOCK_KERNEL_FAMILY("layernorm::backward::narrow_rows", RowTypes, RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::backward::block_rows", RowTypes, opdock::KernelNumbers<4>,
                         RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::backward::long_rows", RowTypes)};
constexpr auto kWeightSums = OPDOCK_KERNEL_FAMILY("layernorm::backward::weight_sums", RowTypes);
constexpr uint32_t kTotals = OPDOCK_KERNEL_INDEX("layernorm::backward::totals");

struct Arguments {
  Tensor grad, x;
  OptionalTensor weight, bias, grad_sum;
  double eps;
  bool centred;
};

// In the workspace: the chunks' sums of the weight, those of the bias, and each row's moments.
struct Workspace {
  Workspace(const Arguments& of, bool is_cpu) {
    const int64_t length = of.x.size(-1), rows = length == 0 ? 0 : of.x.numel() / length;
    if (rows == 0 || (!of.weight && !of.bias)) return;
    chunks = opdock::column_chunks(rows, length).count;
    sums = chunks * length * std::max<int64_t>(of.x.dtype().bytes(), sizeof(float));
    bias = of.weight ? sums : 0;
    moments = bias + (of.bias ? sums : 0);
    bytes = moments + (is_cpu ? 0 : rows * static_cast<int64_t>(sizeof(Moments)));
  }
  int64_t chunks = 0, sums = 0, bias = 0, moments = 0, bytes = 0;
};

void plan(Plan& plan, const Arguments& of) {
  check_arguments(plan, of.x, of.grad_sum, "grad_sum", of.weight, of.bias, of.eps);
  check(of.grad, "grad").same_dtype_as(of.x, "x").same_device_as(of.x, "x");
  check(of.grad, "grad").same_shape_as(of.x, "x");
  opdock::check_rows(of.grad, "grad");
  plan.output(of.x.like());
  if (of.weight) plan.output(of.weight->like());
  if (of.bias) plan.output(of.bias->like());
  plan.workspace(static_cast<uint64_t>(Workspace(of, plan.is_cpu()).bytes));
}

void run_on_cpu(const Call& call, const BackwardJob& job, const OptionalTensor& grad_weight,
                const OptionalTensor& grad_bias) {
  static const auto kernel = OPDOCK_SIMD_CHOOSE(run_backward);
  if (!grad_weight && !grad_bias)
    return opdock::for_rows(call, job.params.rows.count, job.params.length,
                            [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
  static const auto chunks = OPDOCK_SIMD_CHOOSE(run_backward_chunks);
  static const auto totals = OPDOCK_SIMD_CHOOSE(column_totals);
  call.parallel_for(job.sums.chunks.count, 1,
                    [&](int64_t begin, int64_t end) { chunks(job, begin, end); });
  const OptionalTensor* const found[] = {&grad_weight, &grad_bias};
  for (int s = 0; s < 2; ++s) {
    if (!*found[s]) continue;
    const Tensor out = **found[s];
    const ColumnJob columns = {job.dtype, job.sums.partial[s], job.sums.chunks.count,
                               job.params.length, out.raw()};
    call.parallel_for(out.numel(), std::max<int64_t>(64, 16384 / columns.chunks),
                      [&](int64_t begin, int64_t end) { totals(columns, begin, end); });
  }
}

void run_on_gpu(const Call& call, BackwardParams* params, const WeightParams& sums,
                const Arguments& of, const OptionalTensor& grad_weight,
                const OptionalTensor& grad_bias) {
  const opdock::Dtype dtype = of.x.dtype();
  const opdock::RowFit fit =
      opdock::fit_of(params->rows, params->length, dtype.bytes(),
                     {params->x, params->grad, params->out, params->grad_sum}, {params->weight});
  opdock::launch_rows(call, kRows, dtype, fit, params);
  if (!grad_weight && !grad_bias) return;
  opdock::launch_column_chunks(call, kWeightSums(dtype), sums.at, sums.sums, sums);
  const int64_t chunks = sums.sums.chunks.count;
  if (grad_weight)
    opdock::launch_column_totals(call, kTotals, sums.sums.partial[0], chunks, *grad_weight);
  if (grad_bias)
    opdock::launch_column_totals(call, kTotals, sums.sums.partial[1], chunks, *grad_bias);
}

// The sums of no rows.
void zero(const Call& call, const OptionalTensor& sums) {
  if (!sums || sums->numel() == 0) return;
  if (!call.is_cpu()) return opdock::launch_column_totals(call, kTotals, nullptr, 0, *sums);
  std::memset(sums->raw(), 0, static_cast<size_t>(sums->numel() * sums->dtype().bytes()));
}

void run(Call& call, Results results, const Arguments& of) {
  const Tensor out = results[0];
  const OptionalTensor grad_weight = of.weight ? results.optional(1) : std::nullopt;
  const OptionalTensor grad_bias = of.bias ? results.optional(2) : std::nullopt;
  opdock::check_rows(out, "output 0");
  if (grad_weight) check(*grad_weight, "output 1").contiguous();
  if (grad_bias) check(*grad_bias, "output 2").contiguous();
  if (of.x.numel() == 0) {
    zero(call, grad_weight);
    zero(call, grad_bias);
    return;
  }
  const Workspace at(of, call.is_cpu());
  char* const workspace = static_cast<char*>(call.workspace());
  BackwardParams params = {};
  params.x = of.x.raw();
  params.grad = of.grad.raw();
  params.grad_sum = of.grad_sum ? of.grad_sum->raw() : nullptr;
  params.weight = of.weight ? of.weight->raw() : nullptr;
  params.out = out.raw();
  params.length = of.x.size(-1);
  params.eps = static_cast<float>(of.eps);
  params.share = 1.0f / static_cast<float>(params.length);
  params.centred = of.centred;
  params.rows = opdock::make_rows<4>({of.x, of.grad, out, of.grad_sum});
  WeightParams sums = {};
  if (grad_weight || grad_bias) {
    sums.at = opdock::make_elements<2>({of.grad, of.x}, params.length, {}, true);
    sums.sums =
        opdock::make_column_sums<2>(call, sums.at, of.x.dtype().bytes(), {-1, -1}, params.length);
    if (grad_weight) sums.sums.partial[0] = workspace;
    if (grad_bias) sums.sums.partial[1] = workspace + at.bias;
    if (!call.is_cpu()) {
      params.moments = reinterpret_cast<Moments*>(workspace + at.moments);
      sums.moments = params.moments;
    }
  }
  if (call.is_cpu())
    run_on_cpu(call, {of.x.dtype(), of.eps, params, sums.sums}, grad_weight, grad_bias);
  else
    run_on_gpu(call, &params, sums, of, grad_weight, grad_bias);
}

void plan_layer_norm(Plan& of, Tensor grad, Tensor x, OptionalTensor weight, OptionalTensor bias,
                     OptionalTensor grad_sum, double eps) {
  plan(of, {grad, x, weight, bias, grad_sum, eps, true});
}
void run_layer_norm(Call& call, Results results, Tensor grad, Tensor x, OptionalTensor weight,
                    OptionalTensor bias, OptionalTensor grad_sum, double eps) {
  run(call, results, {grad, x, weight, bias, grad_sum, eps, true});
}

void plan_rms_norm(Plan& of, Tensor grad, Tensor x, OptionalTensor weight, OptionalTensor grad_sum,
                   double eps) {
  plan(of, {grad, x, weight, {}, grad_sum, eps, false});
}
void run_rms_norm(Call& call, Results results, Tensor grad, Tensor x, OptionalTensor weight,
                  OptionalTensor grad_sum, double eps) {
  run(call, results, {grad, x, weight, {}, grad_sum, eps, false});
}

}  // namespace
}  // namespace layernorm::backward

OPDOCK_OP(layer_norm_backward, layernorm::backward::plan_layer_norm, nullptr,
          layernorm::backward::run_layer_norm)
OPDOCK_OP(rms_norm_backward, layernorm::backward::plan_rms_norm, nullptr,
          layernorm::backward::run_rms_norm)
