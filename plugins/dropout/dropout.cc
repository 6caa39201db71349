// Implements dropout, dropout_add and dropout_backward: checks their arguments and hands the
// elements to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <opdock/op.hpp>

#include "device/dropout_params.cuh"
#include "dropout_cpu.h"

namespace dropout {
namespace {

using namespace opdock::usual;
using Generator = std::optional<const opdock_generator*>;

using Types = KernelTypes<float, opdock::half, opdock::bfloat16, double>;
constexpr auto kForward = OPDOCK_KERNEL_FAMILY("dropout::forward", Types);
constexpr auto kForwardAdd = OPDOCK_KERNEL_FAMILY("dropout::forward_add", Types);
constexpr auto kBackward = OPDOCK_KERNEL_FAMILY("dropout::backward", Types);

void check_dtype(Tensor tensor, const char* name) {
  check(tensor, name)
      .dtype(dtype_of<float>(), dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>(),
             dtype_of<double>());
}

void check_probability(double p) {
  opdock::check_number(p, "p", p >= 0 && p <= 1, "a probability, from 0 to 1; for 30 % pass 0.3");
}

void plan(Plan& plan, Tensor x, double p, Generator) {
  check_dtype(x, "x");
  check_probability(p);
  plan.output(x.like());
  plan.output(x.like().with_dtype(opdock::dtype_of<bool>()));
  plan.random_numbers(static_cast<uint64_t>(x.numel()));
}

void plan_add(Plan& plan, Tensor x, Tensor, double p, Generator generator) {
  dropout::plan(plan, x, p, generator);
}

void plan_backward(Plan& plan, Tensor grad, Tensor mask, double p) {
  check_dtype(grad, "grad");
  check(mask, "mask").dtype(dtype_of<bool>()).same_shape_as(grad, "grad");
  check_probability(p);
  plan.output(grad.like());
}

// Returns the smallest number that is at least p * 2^32; both steps are exact.
Threshold threshold_of(double p) {
  const double least = std::ceil(std::ldexp(p, 32));
  if (least > 4294967295.0) return {1, false};
  return {static_cast<unsigned int>(least), true};
}

Params make_params(Tensor x, const void* residual, Tensor mask, Tensor out, double p) {
  Params params = {};
  params.x = x.raw();
  params.residual = residual;
  params.mask = static_cast<unsigned char*>(mask.raw());
  params.out = out.raw();
  params.numel = x.numel();
  params.scale = p < 1 ? 1 / (1 - p) : 0;
  params.float_scale = static_cast<float>(params.scale);
  params.threshold = threshold_of(p);
  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  const uintptr_t vectors = address(params.x) | address(residual) | address(params.out);
  params.is_aligned = vectors % 16 == 0 && address(params.mask) % 8 == 0;
  return params;
}

void launch(const Call& call, uint32_t kernel, Tensor x, const Params& params) {
  // A kernel's thread handles this many elements at a time.
  const int64_t group = std::max<int64_t>(4, 16 / x.dtype().bytes());
  const int64_t groups = (params.numel + group - 1) / group;
  // Each thread has one group, up to the maximum number of threads: AMD's driver takes fewer than
  // 2^32.
  constexpr int64_t most = (int64_t{1} << 32) / kThreads - 1;
  call.launch(kernel, {std::min((groups + kThreads - 1) / kThreads, most), kThreads}, params);
}

// Elements that are worth waking a CPU thread for: about ten microseconds of work.
constexpr int64_t kGrain = 16384;

// residual: null for dropout.
void drop(Call& call, Results results, Tensor x, const void* residual, double p) {
  const Tensor out = results[0], mask = results[1];
  if (x.numel() == 0) return;
  Params params = make_params(x, residual, mask, out, p);
  params.random = opdock::random_source(*call.generator());
  if (!call.is_cpu()) {
    const uint32_t kernel = residual ? kForwardAdd(x.dtype()) : kForward(x.dtype());
    return launch(call, kernel, x, params);
  }
  const Job job = {x.dtype(), params};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(forward);
  call.parallel_for(params.numel, kGrain,
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

void run(Call& call, Results results, Tensor x, double p, Generator) {
  drop(call, results, x, nullptr, p);
}
void run_add(Call& call, Results results, Tensor x, Tensor residual, double p, Generator) {
  drop(call, results, x, residual.raw(), p);
}

void run_backward(Call& call, Results results, Tensor grad, Tensor mask, double p) {
  const Tensor out = results[0];
  if (grad.numel() == 0) return;
  const Params params = make_params(grad, nullptr, mask, out, p);
  if (!call.is_cpu()) return launch(call, kBackward(grad.dtype()), grad, params);
  const Job job = {grad.dtype(), params};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(backward);
  call.parallel_for(params.numel, kGrain,
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

}  // namespace
}  // namespace dropout

OPDOCK_OP(dropout, dropout::plan, nullptr, dropout::run)
OPDOCK_OP(dropout_add, dropout::plan_add, nullptr, dropout::run_add)
OPDOCK_OP(dropout_backward, dropout::plan_backward, nullptr, dropout::run_backward)
