// Implements the gradients of softmax and log_softmax: checks their arguments and hands the rows to
// the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/op.hpp>

#include "device/softmax_params.cuh"
#include "softmax_cpu.h"

namespace softmax::backward {
namespace {

using namespace opdock::usual;

constexpr auto kAny = OPDOCK_ROW_FAMILY("softmax::backward", 2, opdock::kLightPairs);
constexpr opdock::RowKernels kWhole = {
    2, opdock::kLightPairs, kAny.narrow_rows,
    OPDOCK_KERNEL_FAMILY("softmax::backward::whole::block_rows", RowTypes, KernelNumbers<2, 4, 8>,
                         KernelNumbers<0>),
    opdock::NoKernels{}};

// Returns whether the gradient is expanded along its rows, as sum().backward() passes it.
bool is_broadcast(Tensor grad) {
  return grad.size(-1) > 1 && grad.stride(-1) == 0;
}

// Returns the number of elements from which on a second thread is worth its start, which takes 3 to
// 4 us: one core computes that many in about 8 us (measured on an EPYC with two cores). For the
// exponentials of log_softmax's gradient, for_rows() already divides rightly.
int64_t min_elements_of_two_threads(opdock::Dtype dtype, bool log) {
  if (log) return 0;
  return dtype.bytes() == 4 ? 48 << 10 : 24 << 10;
}

void plan(Plan& plan, Tensor grad, Tensor result, double, bool causal) {
  opdock::check_row_dtype(plan, result, "result");
  if (causal) check(result, "result").ndim_at_least(2);
  if (is_broadcast(grad))
    check(grad, "grad").aligned();
  else
    opdock::check_rows(grad, "grad");
  plan.output(result.like());
}

void run(Call& call, Results outputs, Tensor grad, Tensor result, double scale, bool causal,
         bool log) {
  const Tensor out = outputs[0];
  if (result.numel() == 0) return;
  BackwardParams params = {};
  params.grad = grad.raw();
  params.result = result.raw();
  params.out = out.raw();
  params.length = result.size(-1);
  params.queries = causal ? result.size(-2) : 1;
  params.scale = static_cast<float>(scale);
  params.causal = causal;
  params.log = log;
  params.is_broadcast = is_broadcast(grad);
  params.rows = opdock::make_rows<3>({grad, result, out});
  if (!call.is_cpu()) {
    const void* const by_vectors = params.is_broadcast ? nullptr : params.grad;
    const opdock::RowFit fit = opdock::fit_of(params.rows, params.length, result.dtype().bytes(),
                                              {by_vectors, params.result, params.out}, {nullptr});
    const bool is_usual = !causal && !params.is_broadcast;
    if (!is_usual || !opdock::try_launch_rows(call, kWhole, result.dtype(), fit, &params))
      opdock::launch_rows(call, kAny, result.dtype(), fit, &params);
    return;
  }
  const BackwardJob job = {result.dtype(), scale, params};
  using Kernel = void (*)(const BackwardJob&, int64_t, int64_t);
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(run_backward);
  const int64_t count = params.rows.count;
  if (count * params.length < min_elements_of_two_threads(result.dtype(), log)) {
    kernel(job, 0, count);
    return;
  }
  opdock::for_rows(call, count, params.length,
                   [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

void run_softmax(Call& call, Results outputs, Tensor grad, Tensor result, double scale,
                 bool causal) {
  run(call, outputs, grad, result, scale, causal, false);
}

void run_log_softmax(Call& call, Results outputs, Tensor grad, Tensor result, double scale,
                     bool causal) {
  run(call, outputs, grad, result, scale, causal, true);
}

}  // namespace
}  // namespace softmax::backward

OPDOCK_OP(softmax_backward, softmax::backward::plan, nullptr, softmax::backward::run_softmax)
OPDOCK_OP(log_softmax_backward, softmax::backward::plan, nullptr,
          softmax::backward::run_log_softmax)
