// layer_norm and add_layer_norm: check their arguments and hand the rows to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <opdock/plugin.hpp>
#include <opdock/rows.hpp>

#include "device/norm_params.cuh"
#include "norm_cpu.h"

namespace layernorm {
namespace {

using opdock::bfloat16;
using opdock::Call;
using opdock::check;
using opdock::dtype_of;
using opdock::Error;
using opdock::half;
using opdock::Outputs;
using opdock::Plan;
using opdock::Tensor;
using OptionalTensor = std::optional<Tensor>;

uint64_t element_bytes(Tensor x) {
  return static_cast<uint64_t>(x.dtype().bytes());
}

void check_arguments(const Plan& plan, Tensor x, const OptionalTensor& residual,
                     const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  if (plan.is_cpu())
    check(x, "x").dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>(),
                        dtype_of<double>());
  else
    check(x, "x").dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>());
  check(x, "x").ndim_at_least(1).contiguous_last_dim().aligned(element_bytes(x));
  if (residual)
    check(*residual, "residual")
        .same_dtype_as(x, "x")
        .same_device_as(x, "x")
        .same_shape_as(x, "x")
        .contiguous_last_dim()
        .aligned(element_bytes(x));
  const std::pair<const OptionalTensor&, const char*> parameters[] = {{weight, "weight"},
                                                                      {bias, "bias"}};
  for (const auto& [parameter, name] : parameters)
    if (parameter)
      check(*parameter, name)
          .same_dtype_as(x, "x")
          .same_device_as(x, "x")
          .shape({x.size(-1)})
          .contiguous()
          .aligned(element_bytes(x));
  if (!std::isfinite(eps) || eps < 0)
    throw Error(OPDOCK_INVALID_ARGUMENT, "argument 'eps': found " + std::to_string(eps) +
                                             ", wanted a finite number that is not negative; "
                                             "1e-5 is usual");
}

// An output may be x or residual itself; otherwise it shares no memory with an argument.
void check_output(Tensor out, const char* name, Tensor x, const OptionalTensor& residual,
                  const OptionalTensor& weight, const OptionalTensor& bias) {
  check(out, name).contiguous_last_dim().aligned(element_bytes(x));
  auto apart = [&](const OptionalTensor& input, const char* input_name) {
    if (!input) return;
    bool same = out.raw() == input->raw();
    for (int32_t i = 0; same && i < x.ndim(); ++i)
      same = x.shape()[i] == 1 || input->strides()[i] == out.strides()[i];
    if (!same) check(out, name).no_overlap_with(*input, input_name);
  };
  apart(x, "x");
  apart(residual, "residual");
  if (weight) check(out, name).no_overlap_with(*weight, "weight");
  if (bias) check(out, name).no_overlap_with(*bias, "bias");
}

const char* element_name(Tensor x) {
  if (x.dtype() == dtype_of<float>()) return "float";
  return x.dtype() == dtype_of<half>() ? "opdock::half" : "opdock::bfloat16";
}

// Whether every row is made of whole 16-byte vectors that a thread can load.
bool is_wide(const Params& params, uint64_t bytes) {
  if (params.length % static_cast<int64_t>(16 / bytes) != 0) return false;
  const void* data[] = {params.x, params.residual, params.out, params.sum};
  for (int t = 0; t < 4; ++t)
    if (data[t] && !opdock::rows_aligned(params.rows, t, data[t], bytes, 16)) return false;
  return reinterpret_cast<uintptr_t>(params.weight) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(params.bias) % 16 == 0;
}

void launch(Call& call, const Params& params, Tensor x) {
  const int64_t warp = call.facts().warp_size;
  const int64_t bytes = x.dtype().bytes();
  const int64_t vectors = params.length * bytes / 16;
  const int64_t most_items = bytes == 4 ? 8 : 4;
  int64_t blocks = params.rows.count;
  int64_t threads;
  char name[80];
  if (params.length <= 8 * warp) {  // a lane holds 8 elements: kShortItems
    const int64_t warps = 128 / warp;
    blocks = (blocks + warps - 1) / warps;
    threads = 128;
    std::snprintf(name, sizeof name, "layernorm::short_rows<%s>", element_name(x));
  } else if (is_wide(params, element_bytes(x)) && vectors <= most_items * 1024) {
    const int items = vectors <= 256 ? 1 : vectors <= 4 * 1024 ? 4 : 8;
    threads = (vectors + items - 1) / items;
    std::snprintf(name, sizeof name, "layernorm::vector_rows<%s, %d>", element_name(x), items);
  } else {
    threads = std::min<int64_t>(1024, params.length);
    std::snprintf(name, sizeof name, "layernorm::any_rows<%s>", element_name(x));
  }
  threads = (threads + warp - 1) / warp * warp;
  // Kernels go on to further rows where there are more than a grid may have blocks.
  call.launch(name, {std::min<int64_t>(blocks, 0x7fffffff), threads}, params);
}

void* raw(const OptionalTensor& tensor) {
  return tensor ? tensor->raw() : nullptr;
}

void normalise(Call& call, Tensor x, const OptionalTensor& residual, const OptionalTensor& weight,
               const OptionalTensor& bias, double eps, Tensor out, const OptionalTensor& sum) {
  check_output(out, "output 0", x, residual, weight, bias);
  if (sum) {
    check_output(*sum, "output 1", x, residual, weight, bias);
    check(*sum, "output 1").no_overlap_with(out, "output 0");
  }
  if (x.numel() == 0) return;
  const int64_t length = x.size(-1);
  const opdock::Rows<4> rows = opdock::make_rows<4>({x, residual, out, sum});
  if (!call.is_cpu()) {
    Params params = {};
    params.x = x.raw();
    params.residual = raw(residual);
    params.weight = raw(weight);
    params.bias = raw(bias);
    params.out = out.raw();
    params.sum = raw(sum);
    params.length = length;
    params.eps = static_cast<float>(eps);
    params.rows = rows;
    launch(call, params, x);
    return;
  }
  Job job = {};
  job.element = x.dtype() == dtype_of<float>()      ? Element::kFloat32
                : x.dtype() == dtype_of<half>()     ? Element::kFloat16
                : x.dtype() == dtype_of<bfloat16>() ? Element::kBFloat16
                                                    : Element::kFloat64;
  job.x = x.raw();
  job.residual = raw(residual);
  job.weight = raw(weight);
  job.bias = raw(bias);
  job.out = out.raw();
  job.sum = raw(sum);
  job.length = length;
  job.eps = eps;
  job.rows = rows;
  using Kernel = void (*)(const Job&, int64_t, int64_t);
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(run);
  // A thread is worth waking for some ten microseconds of work.
  call.parallel_for(rows.count, std::max<int64_t>(1, 16384 / length),
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

void prepare(Call& call) {
  if (call.is_cpu()) return;
  call.kernel("layernorm::short_rows<float>");  // loads the image: all its kernels
}

void plan_layer_norm(Plan& plan, Tensor x, OptionalTensor weight, OptionalTensor bias, double eps) {
  check_arguments(plan, x, std::nullopt, weight, bias, eps);
  plan.output(x.like());
}

void run_layer_norm(Call& call, Outputs outputs, Tensor x, OptionalTensor weight,
                    OptionalTensor bias, double eps) {
  normalise(call, x, std::nullopt, weight, bias, eps, outputs[0], std::nullopt);
}

void plan_add_layer_norm(Plan& plan, Tensor x, Tensor residual, OptionalTensor weight,
                         OptionalTensor bias, double eps) {
  check_arguments(plan, x, residual, weight, bias, eps);
  plan.output(x.like());
  plan.output(x.like());
}

void run_add_layer_norm(Call& call, Outputs outputs, Tensor x, Tensor residual,
                        OptionalTensor weight, OptionalTensor bias, double eps) {
  normalise(call, x, residual, weight, bias, eps, outputs[0], outputs[1]);
}

}  // namespace
}  // namespace layernorm

OPDOCK_OP(layer_norm, layernorm::plan_layer_norm, layernorm::prepare, layernorm::run_layer_norm)
OPDOCK_OP(add_layer_norm, layernorm::plan_add_layer_norm, layernorm::prepare,
          layernorm::run_add_layer_norm)
