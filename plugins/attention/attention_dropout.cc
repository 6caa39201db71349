// Implements attention_dropout and attention_dropout_backward: attention whose weights become 0 at
// random.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/op.hpp>

#include "attention_launch.h"
#include "attention_passes.h"

namespace attention {
namespace {

using Generator = std::optional<const opdock_generator*>;

constexpr auto kEmpty =
    OPDOCK_KERNEL_FAMILY("attention::dropped::plain", HeadSizes, opdock::RowTypes);

void check_dropped(Tensor k, double p) {
  check(k, "k").ndim(4);
  opdock::check_rows(k, "k");
  opdock::check_number(p, "p", p >= 0 && p <= 1, "a probability, from 0 to 1; for 10 % pass 0.1");
}

Arguments arguments_of(Tensor q, Tensor k, Tensor v, const OptionalTensor& lengths,
                       const OptionalTensor& mask, const OptionalTensor& bias,
                       const OptionalTensor& slopes, std::optional<double> scale, bool causal,
                       int64_t window, const DropArguments& drop) {
  Arguments of = {q,     k,      v,     lengths, mask, bias, slopes, std::nullopt, std::nullopt,
                  scale, causal, window};
  of.drop = drop;
  return of;
}

void plan_dropout(Plan& plan, Tensor q, Tensor k, Tensor v, double p, OptionalTensor lengths,
                  OptionalTensor mask, OptionalTensor bias, OptionalTensor slopes,
                  std::optional<double> scale, bool causal, int64_t window,
                  std::optional<Dtype> dtype, Generator) {
  check_queries(plan, q);
  check(k, "k").same_dtype_as(q, "q");
  check_dropped(k, p);
  const Arguments of =
      arguments_of(q, k, v, lengths, mask, bias, slopes, scale, causal, window, {p});
  plan_forward_pass(plan, of, true);
  plan.output(q.like());
  const int64_t shape[] = {q.size(0), q.size(2), q.size(1)}, two[] = {2};
  plan.output(opdock::Layout(dtype_of_logarithms(q, dtype), shape, 3));
  plan.output(opdock::Layout(dtype_of<int64_t>(), two, 1));
  plan.random_numbers(random_numbers_of(of));
}

// Leaves the seed of a call without queries.
void run_empty(Call& call, const Arguments& of) {
  Params params = {};
  params.group = params.splits = 1;
  params.drop = make_params(of).drop;
  if (call.is_cpu()) {
    params.drop.new_state[0] = static_cast<long long>(params.drop.seed());
    params.drop.new_state[1] = static_cast<long long>(params.drop.first_block());
    return;
  }
  call.launch(kEmpty(64, of.q.dtype()), {opdock::Dim3(1, 1, 1), kPlainThreads}, params);
}

void run_dropout(Call& call, Results results, Tensor q, Tensor k, Tensor v, double p,
                 OptionalTensor lengths, OptionalTensor mask, OptionalTensor bias,
                 OptionalTensor slopes, std::optional<double> scale, bool causal, int64_t window,
                 std::optional<Dtype>, Generator) {
  check(results[1], "output 1").aligned();
  check(results[2], "output 2").contiguous().aligned();
  const Arguments of = arguments_of(q, k, v, lengths, mask, bias, slopes, scale, causal, window,
                                    {p, results[2], call.generator()});
  if (q.numel() == 0) return run_empty(call, of);
  run_forward_pass(call, results[0], results[1], of);
}

BackwardArguments gradients_of(Tensor grad, Tensor result, Tensor lse,
                               const OptionalTensor& grad_lse, const Arguments& of) {
  return {{grad, result, lse, grad_lse}, of};
}

void plan_dropout_backward(Plan& plan, Tensor grad, Tensor q, Tensor k, Tensor v, Tensor result,
                           Tensor lse, OptionalTensor grad_lse, Tensor seed, double p,
                           OptionalTensor lengths, OptionalTensor mask, OptionalTensor bias,
                           OptionalTensor slopes, std::optional<double> scale, bool causal,
                           int64_t window) {
  check_dropped(k, p);
  check(seed, "seed").dtype(dtype_of<int64_t>()).shape({2}).contiguous().aligned();
  plan_gradient_pass(plan, gradients_of(grad, result, lse, grad_lse,
                                        arguments_of(q, k, v, lengths, mask, bias, slopes, scale,
                                                     causal, window, {p, seed})));
  plan.output(q.like());
  plan.output(k.like());
  plan.output(v.like());
}
void run_dropout_backward(Call& call, Results results, Tensor grad, Tensor q, Tensor k, Tensor v,
                          Tensor result, Tensor lse, OptionalTensor grad_lse, Tensor seed, double p,
                          OptionalTensor lengths, OptionalTensor mask, OptionalTensor bias,
                          OptionalTensor slopes, std::optional<double> scale, bool causal,
                          int64_t window) {
  run_gradient_pass(call,
                    gradients_of(grad, result, lse, grad_lse,
                                 arguments_of(q, k, v, lengths, mask, bias, slopes, scale, causal,
                                              window, {p, seed})),
                    results[0], results[1], results[2]);
}

}  // namespace
}  // namespace attention

OPDOCK_OP(attention_dropout, attention::plan_dropout, nullptr, attention::run_dropout)
OPDOCK_OP(attention_dropout_backward, attention::plan_dropout_backward, nullptr,
          attention::run_dropout_backward)
