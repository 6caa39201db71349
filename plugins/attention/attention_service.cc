// SPDX-License-Identifier: Apache-2.0
#include "attention_service.h"

#include <opdock/attention.hpp>

namespace attention {
namespace {

// The plugin's kernels take as long for fewer queries, and a new shape costs the service 0.1 s.
constexpr int64_t kLeastQueries = 256;

// An attention without lengths, masks, biases and scales of a cache.
bool is_plain(const Arguments& of) {
  return !of.lengths && !of.mask && !of.bias && !of.slopes && !of.k_scale && !of.v_scale;
}

bool suits(const Arguments& of) {
  if (!is_plain(of) || of.q.dtype().bytes() != 2 || of.k.dtype() != of.q.dtype()) return false;
  const int64_t queries = of.q.size(1), keys = of.k.size(1);
  if (queries < kLeastQueries || (of.causal && queries > keys)) return false;
  // Nobody sees the first keys if there is a window and more keys than queries. They may be NaN,
  // and the service multiplies them by 0.
  if (of.window > 0 && queries != keys) return false;
  return of.q.stride(3) == 1 && of.k.stride(3) == 1 && of.v.stride(3) == 1;
}

bool suits(const Arguments& of, const Gradient& from) {
  return suits(of) && from.lse && !from.grad_lse && from.lse->is_contiguous() &&
         from.grad.stride(3) == 1 && from.result.stride(3) == 1;
}

opdock::Attention describe(const Arguments& of) {
  opdock::Attention attention(of.q, of.k, of.v);
  if (of.causal) attention.causal(true);
  attention.scale(static_cast<float>(scale_of(of))).window(of.window);
  return attention;
}

opdock::Attention describe(const Arguments& of, const Gradient& from) {
  opdock::Attention attention = describe(of);
  attention.out(from.result).lse(*from.lse).backward(from.grad);
  return attention;
}

}  // namespace

bool plan_service(const Plan& plan, const Arguments& of, bool wants_lse, uint64_t* bytes) {
  *bytes = 0;
  if (!plan.is_cuda() || !suits(of)) return false;
  opdock::Attention attention = describe(of);
  if (wants_lse) attention.lse();
  return attention.plan(plan, bytes);
}

bool run_service(Call& call, const Arguments& of, Tensor out, const OptionalTensor& lse) {
  if (!call.is_cuda() || !suits(of) || out.stride(3) != 1) return false;
  if (lse && !lse->is_contiguous()) return false;
  opdock::Attention attention = describe(of);
  if (lse) attention.lse(*lse);
  return attention.out(out).run(call);
}

bool plan_service(const Plan& plan, const Arguments& of, const Gradient& from, uint64_t* bytes) {
  *bytes = 0;
  return plan.is_cuda() && suits(of, from) && describe(of, from).plan(plan, bytes);
}

bool run_service(Call& call, const Arguments& of, const Gradient& from, Tensor grad_q,
                 Tensor grad_k, Tensor grad_v) {
  if (!call.is_cuda() || !suits(of, from)) return false;
  if (grad_q.stride(3) != 1 || grad_k.stride(3) != 1 || grad_v.stride(3) != 1) return false;
  return describe(of, from).gradients(grad_q, grad_k, grad_v).run(call);
}

}  // namespace attention
