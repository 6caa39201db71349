// Implements adam_ and adamw_: one step of the optimizer for lists of tensors.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/kernel_names.hpp>

#include "device/adam_params.cuh"
#include "lists_cpu.h"
#include "lists_gpu.h"

namespace adam {
namespace {

using opdock::Call;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using namespace optimizer;

constexpr uint32_t kBegin = OPDOCK_KERNEL_INDEX("adam::begin");
constexpr auto kUpdate = OPDOCK_KERNEL_FAMILY(
    "adam::update", opdock::KernelTypes<float, opdock::half, opdock::bfloat16>);

// The ops' arguments, in the order of their schemas.
struct Arguments {
  Tensors params, grads, exp_avgs, exp_avg_sqs;
  Tensor step;
  double lr, beta1, beta2, eps, weight_decay;
  bool maximize;
  std::optional<Tensors> masters;
  OptionalTensor lr_tensor, grad_scale, found_inf;

  Lists lists() const {
    return {params, grads, {&exp_avgs, &exp_avg_sqs}, {"exp_avgs", "exp_avg_sqs"}, masters};
  }
};

void check_arguments(const Arguments& a, bool is_cpu) {
  check_lists(a.lists(), is_cpu);
  check_one_number(a.step, "step");
  check_scalars(a.lr_tensor, a.grad_scale, a.found_inf);
  check_not_negative(a.lr, "lr", "1e-3");
  check_beta(a.beta1, "beta1", "0.9");
  check_beta(a.beta2, "beta2", "0.999");
  check_not_negative(a.eps, "eps", "1e-8");
  check_not_negative(a.weight_decay, "weight_decay", "1e-2");
}

// is_decoupled: AdamW's weight decay.
void run_on_cpu(const Call& call, const Arguments& a, bool is_decoupled) {
  if (number_of(a.found_inf, 0) != 0) return;
  float* const step = a.step.data<float>();
  *step += 1;
  const Lists lists = a.lists();
  if (a.params.empty()) return;
  const Schedule now =
      make_schedule(number_of(a.lr_tensor, a.lr), a.beta1, a.beta2, a.eps,
                    is_decoupled ? a.weight_decay : 0, static_cast<int64_t>(*step));
  AdamNumbers numbers;
  numbers.grads = {number_of(a.grad_scale, 1), a.maximize ? -1.0 : 1.0,
                   is_decoupled ? 0 : a.weight_decay};
  numbers.beta1 = factors_of(a.beta1);
  numbers.beta2 = factors_of(a.beta2);
  numbers.rest1 = 1 - a.beta1;
  numbers.rest2 = 1 - a.beta2;
  numbers.rate = factors_of(now.rate);
  numbers.keep = factors_of(now.keep);
  numbers.eps = now.eps;
  static const auto kernel = OPDOCK_SIMD_CHOOSE(step_adam);
  update_lists(call, lists, [&](const Arrays& arrays, int64_t begin, int64_t end) {
    kernel(dtypes_of(lists), numbers, arrays, begin, end);
  });
}

// One launch computes what depends on the step's number, and each following one updates as many
// tensors as its parameters hold. Nothing is copied to the device, so a graph may capture it.
void run_on_gpu(const Call& call, const Arguments& a, bool is_decoupled) {
  Begin begin = {};
  begin.step = a.step.data<float>();
  begin.lr = address_of(a.lr_tensor);
  begin.grad_scale = address_of(a.grad_scale);
  begin.found_inf = address_of(a.found_inf);
  begin.current = static_cast<Current*>(call.workspace());
  begin.lr_number = a.lr;
  begin.beta1 = a.beta1;
  begin.beta2 = a.beta2;
  begin.eps = a.eps;
  begin.weight_decay = is_decoupled ? a.weight_decay : 0;
  call.launch(kBegin, {1, 1}, begin);
  if (a.params.empty()) return;
  Params params = {};
  params.current = begin.current;
  params.beta1 = factor_of<float>(a.beta1);
  params.beta2 = factor_of<float>(a.beta2);
  params.rest1 = static_cast<float>(1 - a.beta1);
  params.rest2 = static_cast<float>(1 - a.beta2);
  params.weight_decay = is_decoupled ? 0 : static_cast<float>(a.weight_decay);
  params.sign = a.maximize ? -1.0f : 1.0f;
  params.is_scaled = a.grad_scale.has_value();
  launch_chunks(call, kUpdate(a.params[0].dtype()), &params, a.lists());
}

void plan(Plan& plan, Tensors params, Tensors grads, Tensors exp_avgs, Tensors exp_avg_sqs,
          Tensor step, double lr, double beta1, double beta2, double eps, double weight_decay,
          bool maximize, std::optional<Tensors> masters, OptionalTensor lr_tensor,
          OptionalTensor grad_scale, OptionalTensor found_inf) {
  const Arguments arguments = {params,   grads,   exp_avgs,  exp_avg_sqs, step,
                               lr,       beta1,   beta2,     eps,         weight_decay,
                               maximize, masters, lr_tensor, grad_scale,  found_inf};
  check_arguments(arguments, plan.is_cpu());
  plan.workspace(plan.is_cpu() ? workspace_of_lists(arguments.lists()) : sizeof(Current));
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
}  // namespace adam

OPDOCK_OP(adamw_, adam::plan, nullptr, adam::run<true>)
OPDOCK_OP(adam_, adam::plan, nullptr, adam::run<false>)
