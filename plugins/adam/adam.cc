// Implements adam_ and adamw_: one step of the optimizer for lists of tensors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "adam_cpu.h"
#include "adam_job.h"

namespace adam {
namespace {

using opdock::Call;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;

// Waking a CPU thread pays off for about ten microseconds of work.
constexpr int64_t kGrain = 16384;
// Within a tensor, threads begin at multiples of this many elements, which fill whole cache lines.
constexpr int64_t kLine = 64;

template <class T>
Factors<T> factors_of(const Arguments& a, const Schedule& now) {
  return {factor_of<T>(a.beta1), factor_of<T>(a.beta2), factor_of<T>(now.rate),
          factor_of<T>(now.keep)};
}

// t: this step's number, from 1 on.
Job make_job(const Arguments& a, bool is_decoupled, int64_t t) {
  Job job = {};
  job.weight = a.weights()[0].dtype();
  job.grad = a.grads[0].dtype();
  job.average = a.exp_avgs[0].dtype();
  job.copy = a.params[0].dtype();
  const double lr = a.lr_tensor ? *a.lr_tensor->data<float>() : a.lr;
  const Schedule now =
      make_schedule(lr, a.beta1, a.beta2, a.eps, is_decoupled ? a.weight_decay : 0, t);
  job.by = factors_of<double>(a, now);
  job.by_float = factors_of<float>(a, now);
  job.rest1 = 1 - a.beta1;
  job.rest2 = 1 - a.beta2;
  job.eps = now.eps;
  job.weight_decay = is_decoupled ? 0 : a.weight_decay;
  job.scale = a.grad_scale ? *a.grad_scale->data<float>() : 1;
  job.sign = a.maximize ? -1 : 1;
  return job;
}

void plan(Plan& plan, Tensors params, Tensors grads, Tensors exp_avgs, Tensors exp_avg_sqs,
          Tensor step, double lr, double beta1, double beta2, double eps, double weight_decay,
          bool maximize, std::optional<Tensors> masters, OptionalTensor lr_tensor,
          OptionalTensor grad_scale, OptionalTensor found_inf) {
  const Arguments arguments = {params,   grads,   exp_avgs,  exp_avg_sqs, step,
                               lr,       beta1,   beta2,     eps,         weight_decay,
                               maximize, masters, lr_tensor, grad_scale,  found_inf};
  check_arguments(arguments, plan.is_cpu());
  plan.workspace(workspace_bytes(arguments, plan.is_cpu()));
}

template <bool kDecoupled>
void run(Call& call, Results, Tensors params, Tensors grads, Tensors exp_avgs, Tensors exp_avg_sqs,
         Tensor step, double lr, double beta1, double beta2, double eps, double weight_decay,
         bool maximize, std::optional<Tensors> masters, OptionalTensor lr_tensor,
         OptionalTensor grad_scale, OptionalTensor found_inf) {
  const Arguments arguments = {params,   grads,   exp_avgs,  exp_avg_sqs, step,
                               lr,       beta1,   beta2,     eps,         weight_decay,
                               maximize, masters, lr_tensor, grad_scale,  found_inf};
  call.is_cpu() ? run_on_cpu(call, arguments, kDecoupled) : run_on_gpu(call, arguments, kDecoupled);
}

}  // namespace

uint64_t workspace_bytes(const Arguments& a, bool is_cpu) {
  return is_cpu ? a.params.size() * sizeof(int64_t) : sizeof(Current);
}

void run_on_cpu(const Call& call, const Arguments& a, bool is_decoupled) {
  if (a.found_inf && *a.found_inf->data<float>() != 0) return;
  float* const step = a.step.data<float>();
  *step += 1;
  if (a.params.empty()) return;
  const Job job = make_job(a, is_decoupled, static_cast<int64_t>(*step));
  // Where each tensor ends if all are counted one after the other.
  int64_t* const ends = static_cast<int64_t*>(call.workspace());
  const size_t count = a.params.size();
  for (size_t i = 0; i < count; ++i) ends[i] = (i == 0 ? 0 : ends[i - 1]) + a.params[i].numel();
  using Kernel = void (*)(const Job&, const Arrays&, int64_t, int64_t);
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(update);
  call.parallel_for(ends[count - 1], kGrain, [&](int64_t begin, int64_t end) {
    size_t i = static_cast<size_t>(std::upper_bound(ends, ends + count, begin) - ends);
    for (int64_t at = i == 0 ? 0 : ends[i - 1]; at < end; at = ends[i++]) {
      const int64_t numel = ends[i] - at;
      const auto bound = [&](int64_t place) {
        return std::min(numel, (std::max<int64_t>(place - at, 0) + kLine - 1) / kLine * kLine);
      };
      const Arrays arrays = {a.weights()[i].raw(), a.grads[i].raw(), a.exp_avgs[i].raw(),
                             a.exp_avg_sqs[i].raw(), a.masters ? a.params[i].raw() : nullptr};
      if (bound(begin) < bound(end)) kernel(job, arrays, bound(begin), bound(end));
    }
  });
}

}  // namespace adam

OPDOCK_OP(adamw_, adam::plan, nullptr, adam::run<true>)
OPDOCK_OP(adam_, adam::plan, nullptr, adam::run<false>)
