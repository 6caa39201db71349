// Implements attention_backward, the gradients of q, k and v: checks its arguments, plans a GPU's
// launch, and runs it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/op.hpp>

#include "attention_arguments.h"
#include "attention_backward_launch.h"
#include "attention_cpu.h"
#include "attention_passes.h"
#include "attention_service.h"

namespace attention {
namespace {

// Checks a number for each row. The type of the numbers is float, or double for queries of double.
void check_row_numbers(const OptionalTensor& numbers, const char* name, Tensor q) {
  if (!numbers) return;
  if (q.dtype() == dtype_of<double>())
    check(*numbers, name).dtype(dtype_of<float>(), dtype_of<double>());
  else
    check(*numbers, name).dtype(dtype_of<float>());
  check(*numbers, name).shape({q.size(0), q.size(2), q.size(1)}).aligned();
}

bool is_usable(const OptionalTensor& lse, Tensor q) {
  return lse && (q.dtype() != dtype_of<double>() || lse->dtype() == q.dtype());
}

}  // namespace

BackwardParams make_backward_params(const BackwardArguments& a) {
  BackwardParams b = {};
  b.p = make_params(a.of);
  b.scale = b.p.scale;
  b.grad = heads_of(a.grad, a.of);
  b.grad_element = a.grad.size(3) > 1 ? a.grad.stride(3) : 1;
  b.result = heads_of(a.result, a.of);
  // Logarithms in float do not suffice for double.
  if (is_usable(a.lse, a.of.q)) b.lse = row_numbers_of(*a.lse, a.of);
  if (a.grad_lse) b.grad_lse = row_numbers_of(*a.grad_lse, a.of);
  return b;
}

void check_gradient(const Plan& plan, const BackwardArguments& a) {
  check_queries(plan, a.of.q);
  check(a.of.k, "k").same_dtype_as(a.of.q, "q");
  check_arguments(plan, a.of);
  check(a.grad, "grad").same_dtype_as(a.of.q, "q").same_shape_as(a.of.q, "q").aligned();
  check(a.result, "result").same_dtype_as(a.of.q, "q").same_shape_as(a.of.q, "q");
  check_row_numbers(a.lse, "lse", a.of.q);
  check_row_numbers(a.grad_lse, "grad_lse", a.of.q);
}

uint64_t row_bytes_on_cpu(Tensor q) {
  return static_cast<uint64_t>(q.numel() / q.size(3)) * 2 * sizeof(double);
}

void plan_gradient_pass(Plan& plan, const BackwardArguments& a) {
  check_gradient(plan, a);
  if (plan.is_cpu()) return plan.workspace(row_bytes_on_cpu(a.of.q));
  const BackwardChoice choice =
      choose_backward(plan, a.of, a.grad, a.result, make_backward_params(a));
  uint64_t bytes = 0;
  if (!a.of.q_starts && !a.of.drop) plan_service(plan, a.of, a, &bytes);
  plan.workspace(std::max(bytes, backward_workspace_bytes(choice, a.of.q)));
  plan.state(choice);
}

static void run_on_cpu(Call& call, const BackwardParams& b, const Arguments& of) {
  const Params& p = b.p;
  check_lengths(p, of.q.size(0));
  static const auto queries = OPDOCK_SIMD_CHOOSE(backward_queries);
  static const auto keys = OPDOCK_SIMD_CHOOSE(backward_keys);
  if (p.sequences > 0)
    return differentiate_sequences(call, of.q.dtype(), b, scale_of(of), queries, keys);
  const int64_t rows = int64_t{p.queries} * p.group;
  const BackwardJob job = {of.q.dtype(), b, scale_of(of), units_of(rows), units_of(p.keys)};
  // Waking a second thread pays off for about ten microseconds of work.
  const auto grain = [&](int64_t others) {
    return std::max<int64_t>(1, 16384 / (kUnitRows * others * p.size + 1));
  };
  const int64_t shared = of.q.size(0) * of.k.size(2);
  if (of.q.numel() > 0)
    call.parallel_for(shared * job.row_units, grain(p.keys),
                      [&](int64_t begin, int64_t end) { queries(job, begin, end); });
  if (of.k.numel() > 0)
    call.parallel_for(shared * job.key_units, grain(rows),
                      [&](int64_t begin, int64_t end) { keys(job, begin, end); });
}

void run_gradient_pass(Call& call, const BackwardArguments& a, Tensor grad_q, Tensor grad_k,
                       Tensor grad_v) {
  BackwardParams b = make_backward_params(a);
  check(grad_k, "output 1").aligned();
  b.grad_q = heads_of(grad_q, a.of);
  b.grad_k = heads_of(grad_k, a.of);
  b.grad_k_element = grad_k.size(3) > 1 ? grad_k.stride(3) : 1;
  b.grad_v = heads_of(grad_v, a.of);
  b.rows = call.workspace();
  if (a.of.q.numel() == 0) {  // no row is left, and the gradients of k and v are 0
    b.p.sequences = 0;
    b.p.queries = 0;
    b.p.group = 1;
    b.p.heads = static_cast<int>(a.of.k.size(2));
  }
  if (call.is_cpu()) return run_on_cpu(call, b, a.of);
  if (!a.of.q_starts && !a.of.drop && run_service(call, a.of, a, grad_q, grad_k, grad_v)) return;
  b.grads_by_vectors = b.grad_k_element == 1 && fits_vectors({grad_q, grad_k, grad_v}) ? 1 : 0;
  launch_backward(call, call.state<BackwardChoice>(), a.of, &b);
}

BackwardArguments gathered(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor result,
                           OptionalTensor lse, OptionalTensor grad_lse, OptionalTensor lengths,
                           OptionalTensor mask, OptionalTensor bias, OptionalTensor slopes,
                           std::optional<double> scale, bool causal, int64_t window) {
  return {
      {grad, result, lse, grad_lse},
      {q, k, v, lengths, mask, bias, slopes, std::nullopt, std::nullopt, scale, causal, window}};
}

namespace {

void plan_backward(Plan& plan, Tensor grad, Tensor q, Tensor k, Tensor v, Tensor result,
                   OptionalTensor lse, OptionalTensor grad_lse, OptionalTensor lengths,
                   OptionalTensor mask, OptionalTensor bias, OptionalTensor slopes,
                   std::optional<double> scale, bool causal, int64_t window) {
  plan_gradient_pass(plan, gathered(grad, q, k, v, result, lse, grad_lse, lengths, mask, bias,
                                    slopes, scale, causal, window));
  plan.output(q.like());
  plan.output(k.like());
  plan.output(v.like());
}
void run_backward(Call& call, Results results, Tensor grad, Tensor q, Tensor k, Tensor v,
                  Tensor result, OptionalTensor lse, OptionalTensor grad_lse,
                  OptionalTensor lengths, OptionalTensor mask, OptionalTensor bias,
                  OptionalTensor slopes, std::optional<double> scale, bool causal, int64_t window) {
  run_gradient_pass(call,
                    gathered(grad, q, k, v, result, lse, grad_lse, lengths, mask, bias, slopes,
                             scale, causal, window),
                    results[0], results[1], results[2]);
}

}  // namespace
}  // namespace attention

OPDOCK_OP(attention_backward, attention::plan_backward, nullptr, attention::run_backward)
