// SPDX-License-Identifier: Apache-2.0
#include "attention_service.h"

#include <opdock/attention.hpp>

namespace attention {
namespace {

// For fewer queries the plugin's kernels take as long, and a new shape costs the service 0.1 s.
constexpr int64_t kLeastQueries = 256;

bool suits(const Prompt& of) {
  const int64_t queries = of.q.size(1), keys = of.k.size(1);
  if (of.q.dtype().bytes() != 2 || of.k.dtype() != of.q.dtype()) return false;
  if (queries < kLeastQueries || (of.causal && queries > keys)) return false;
  // With a window and more keys than queries, nobody sees the first keys. They may be NaN, and the
  // service multiplies them by 0.
  if (of.window > 0 && queries != keys) return false;
  return of.q.stride(3) == 1 && of.k.stride(3) == 1 && of.v.stride(3) == 1;
}

opdock::Attention describe(const Prompt& of) {
  opdock::Attention attention(of.q, of.k, of.v);
  if (of.causal) attention.causal(true);
  attention.scale(of.scale).window(of.window);
  return attention;
}

}  // namespace

bool attention_service(const Plan& plan, const Prompt& prompt, uint64_t* bytes) {
  *bytes = 0;
  return plan.is_cuda() && suits(prompt) && describe(prompt).plan(plan, bytes);
}

bool attention_service(Call& call, const Prompt& prompt, Tensor out) {
  if (!call.is_cuda() || !suits(prompt) || out.stride(3) != 1) return false;
  return describe(prompt).out(out).run(call);
}

}  // namespace attention
