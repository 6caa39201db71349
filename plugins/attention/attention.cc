// Implements attention and attention_forward: plans a GPU's launch, and runs it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/op.hpp>

#include "attention_arguments.h"
#include "attention_cpu.h"
#include "attention_launch.h"
#include "attention_passes.h"
#include "attention_service.h"

namespace attention {

void plan_forward_pass(Plan& plan, const Arguments& of, bool wants_lse) {
  check_arguments(plan, of);
  if (plan.is_cpu() || of.q.numel() == 0) return;
  const Params p = make_params(of);
  const Choice choice = choose(plan, of.q, of.k, of.v, p);
  uint64_t bytes = 0;
  if (!of.q_starts && !of.drop) plan_service(plan, of, wants_lse, &bytes);
  plan.workspace(std::max(bytes, workspace_bytes(choice, p, of.q.size(0))));
  plan.state(choice);
}

void run_forward_pass(Call& call, Tensor out, const OptionalTensor& lse, const Arguments& of) {
  if (out.numel() == 0) return;
  Params p = make_params(of);
  p.out = heads_of(out, of);
  if (lse) p.lse = row_numbers_of(*lse, of);
  if (!call.is_cpu()) {
    if (!of.q_starts && !of.drop && run_service(call, of, out, lse)) return;
    p.out_by_vectors = fits_vectors({out});
    return launch(call, call.state<Choice>(), of.q, call.workspace(), &p);
  }
  check_lengths(p, of.q.size(0));
  if (p.drop.new_state) {
    const unsigned long long seed = p.drop.seed(), first = p.drop.first_block();
    p.drop.new_state[0] = static_cast<long long>(seed);
    p.drop.new_state[1] = static_cast<long long>(first);
  }
  static const auto kernel = OPDOCK_SIMD_CHOOSE(attend);
  if (of.q_starts) return attend_sequences(call, of.q.dtype(), p, scale_of(of), kernel);
  const int64_t rows = int64_t{p.queries} * p.group;
  const Job job = {of.q.dtype(), p, scale_of(of), units_of(rows)};
  // Waking a second thread pays off for about ten microseconds of work.
  const int64_t each = std::min<int64_t>(rows, kUnitRows) * p.keys * p.size + 1;
  call.parallel_for(of.q.size(0) * (p.heads / p.group) * job.row_units,
                    std::max<int64_t>(1, 65536 / each),
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

Dtype dtype_of_logarithms(Tensor q, std::optional<Dtype> dtype) {
  const Dtype of = dtype.value_or(dtype_of<float>());
  const bool may_be_double = q.dtype() == dtype_of<double>();
  if (of != dtype_of<float>() && !(may_be_double && of == dtype_of<double>()))
    throw Error(OPDOCK_UNSUPPORTED,
                concat("argument 'dtype': found ", of.name(), ", wanted float32",
                       may_be_double ? " or float64" : "", "; convert the result"));
  return of;
}

namespace {

void plan_attention(Plan& plan, Tensor q, Tensor k, Tensor v, OptionalTensor lengths,
                    OptionalTensor mask, OptionalTensor bias, OptionalTensor slopes,
                    OptionalTensor k_scale, OptionalTensor v_scale, std::optional<double> scale,
                    bool causal, int64_t window) {
  plan_forward_pass(
      plan, {q, k, v, lengths, mask, bias, slopes, k_scale, v_scale, scale, causal, window}, false);
  plan.output(q.like());
}
void run_attention(Call& call, Results results, Tensor q, Tensor k, Tensor v,
                   OptionalTensor lengths, OptionalTensor mask, OptionalTensor bias,
                   OptionalTensor slopes, OptionalTensor k_scale, OptionalTensor v_scale,
                   std::optional<double> scale, bool causal, int64_t window) {
  run_forward_pass(call, results[0], std::nullopt,
                   {q, k, v, lengths, mask, bias, slopes, k_scale, v_scale, scale, causal, window});
}

void plan_forward(Plan& plan, Tensor q, Tensor k, Tensor v, OptionalTensor lengths,
                  OptionalTensor mask, OptionalTensor bias, OptionalTensor slopes,
                  OptionalTensor k_scale, OptionalTensor v_scale, std::optional<double> scale,
                  bool causal, int64_t window, std::optional<Dtype> dtype) {
  plan_forward_pass(
      plan, {q, k, v, lengths, mask, bias, slopes, k_scale, v_scale, scale, causal, window}, true);
  plan.output(q.like());
  const int64_t shape[] = {q.size(0), q.size(2), q.size(1)};
  plan.output(opdock::Layout(dtype_of_logarithms(q, dtype), shape, 3));
}
void run_forward(Call& call, Results results, Tensor q, Tensor k, Tensor v, OptionalTensor lengths,
                 OptionalTensor mask, OptionalTensor bias, OptionalTensor slopes,
                 OptionalTensor k_scale, OptionalTensor v_scale, std::optional<double> scale,
                 bool causal, int64_t window, std::optional<Dtype>) {
  check(results[1], "output 1").aligned();
  run_forward_pass(call, results[0], results[1],
                   {q, k, v, lengths, mask, bias, slopes, k_scale, v_scale, scale, causal, window});
}

}  // namespace
}  // namespace attention

OPDOCK_OP(attention, attention::plan_attention, nullptr, attention::run_attention)
OPDOCK_OP(attention_forward, attention::plan_forward, nullptr, attention::run_forward)
