// Implements lion_: one step of the optimizer for lists of tensors.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/kernel_names.hpp>

#include "device/lion_params.cuh"
#include "lists_cpu.h"
#include "lists_gpu.h"

namespace lion {
namespace {

using opdock::Call;
using opdock::Plan;
using opdock::Results;
using namespace optimizer;

constexpr auto kUpdate = OPDOCK_KERNEL_FAMILY(
    "lion::update", opdock::KernelTypes<float, opdock::half, opdock::bfloat16>);

void run_on_cpu(const Call& call, const Lists& lists, double lr, double beta1, double beta2,
                double weight_decay, const Grads& grads) {
  const LionNumbers numbers = {grads,
                               factors_of(beta1),
                               factors_of(beta2),
                               1 - beta1,
                               1 - beta2,
                               factors_of(lr),
                               factors_of(1 - lr * weight_decay)};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(step_lion);
  update_lists(call, lists, [&](const Arrays& arrays, int64_t begin, int64_t end) {
    kernel(dtypes_of(lists), numbers, arrays, begin, end);
  });
}

void plan(Plan& plan, Tensors params, Tensors grads, Tensors exp_avgs, double lr, double beta1,
          double beta2, double weight_decay, bool, std::optional<Tensors> masters,
          OptionalTensor lr_tensor, OptionalTensor grad_scale, OptionalTensor found_inf) {
  const Lists lists = {params, grads, {&exp_avgs, nullptr}, {"exp_avgs", nullptr}, masters};
  check_lists(lists, plan.is_cpu());
  check_scalars(lr_tensor, grad_scale, found_inf);
  check_not_negative(lr, "lr", "1e-4");
  check_beta(beta1, "beta1", "0.9");
  check_beta(beta2, "beta2", "0.99");
  check_not_negative(weight_decay, "weight_decay", "1e-2");
  if (plan.is_cpu()) plan.workspace(workspace_of_lists(lists));
}

void run(Call& call, Results, Tensors params, Tensors grads, Tensors exp_avgs, double lr,
         double beta1, double beta2, double weight_decay, bool maximize,
         std::optional<Tensors> masters, OptionalTensor lr_tensor, OptionalTensor grad_scale,
         OptionalTensor found_inf) {
  const Lists lists = {params, grads, {&exp_avgs, nullptr}, {"exp_avgs", nullptr}, masters};
  if (call.is_cpu()) {
    if (number_of(found_inf, 0) == 0)
      run_on_cpu(call, lists, number_of(lr_tensor, lr), beta1, beta2, weight_decay,
                 {number_of(grad_scale, 1), maximize ? -1.0 : 1.0, 0});
    return;
  }
  if (params.empty()) return;
  Params p = {};
  p.scalars = {address_of(lr_tensor), address_of(grad_scale), address_of(found_inf)};
  p.weight_decay = weight_decay;
  p.rate = factor_of<float>(lr);
  p.keep = factor_of<float>(1 - lr * weight_decay);
  p.beta1 = factor_of<float>(beta1);
  p.beta2 = factor_of<float>(beta2);
  p.rest1 = static_cast<float>(1 - beta1);
  p.rest2 = static_cast<float>(1 - beta2);
  p.sign = maximize ? -1.0f : 1.0f;
  launch_chunks(call, kUpdate(params[0].dtype()), &p, lists);
}

}  // namespace
}  // namespace lion

OPDOCK_OP(lion_, lion::plan, nullptr, lion::run)
