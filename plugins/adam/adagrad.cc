// Implements adagrad_: one step of the optimizer for lists of tensors.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/kernel_names.hpp>

#include "device/adagrad_params.cuh"
#include "lists_cpu.h"
#include "lists_gpu.h"

namespace adagrad {
namespace {

using opdock::Call;
using opdock::Plan;
using opdock::Results;
using namespace optimizer;

constexpr auto kUpdate = OPDOCK_KERNEL_FAMILY(
    "adagrad::update", opdock::KernelTypes<float, opdock::half, opdock::bfloat16>);

void plan(Plan& plan, Tensors params, Tensors grads, Tensors sums, double lr, double eps,
          double weight_decay, bool, std::optional<Tensors> masters, OptionalTensor lr_tensor,
          OptionalTensor grad_scale, OptionalTensor found_inf) {
  const Lists lists = {params, grads, {&sums, nullptr}, {"state_sums", nullptr}, masters};
  check_lists(lists, plan.is_cpu());
  check_scalars(lr_tensor, grad_scale, found_inf);
  check_not_negative(lr, "lr", "1e-2");
  check_not_negative(eps, "eps", "1e-10");
  check_not_negative(weight_decay, "weight_decay", "0");
  if (plan.is_cpu()) plan.workspace(workspace_of_lists(lists));
}

void run(Call& call, Results, Tensors params, Tensors grads, Tensors sums, double lr, double eps,
         double weight_decay, bool maximize, std::optional<Tensors> masters,
         OptionalTensor lr_tensor, OptionalTensor grad_scale, OptionalTensor found_inf) {
  const Lists lists = {params, grads, {&sums, nullptr}, {"state_sums", nullptr}, masters};
  const double sign = maximize ? -1 : 1;
  if (call.is_cpu()) {
    if (number_of(found_inf, 0) != 0) return;
    const AdagradNumbers numbers = {
        {number_of(grad_scale, 1), sign, weight_decay}, number_of(lr_tensor, lr), eps};
    static const auto kernel = OPDOCK_SIMD_CHOOSE(step_adagrad);
    update_lists(call, lists, [&](const Arrays& arrays, int64_t begin, int64_t end) {
      kernel(dtypes_of(lists), numbers, arrays, begin, end);
    });
    return;
  }
  if (params.empty()) return;
  Params p = {};
  p.scalars = {address_of(lr_tensor), address_of(grad_scale), address_of(found_inf)};
  p.lr_number = static_cast<float>(lr);
  p.eps = static_cast<float>(eps);
  p.weight_decay = static_cast<float>(weight_decay);
  p.sign = static_cast<float>(sign);
  launch_chunks(call, kUpdate(params[0].dtype()), &p, lists);
}

}  // namespace
}  // namespace adagrad

OPDOCK_OP(adagrad_, adagrad::plan, nullptr, adagrad::run)
