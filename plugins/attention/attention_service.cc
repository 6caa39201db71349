// SPDX-License-Identifier: Apache-2.0
#include "attention_service.h"

#include <cstdint>
#include <opdock/attention.hpp>

namespace attention {
namespace {

// Prompts of so many queries are left to the service, from an architecture on to the next line.
// The line of 9.0 is measured, on an H100 with cuDNN 9.19: own kernels take as long for fewer
// queries. The others are derived, not measured, from what the architecture's tensor cores give the
// library beyond the instructions that own kernels use. `opdock bench --tune` measures both ways on
// the device at hand, and its answers come first.
struct Default {
  uint32_t arch_major, arch_minor;
  int64_t least_queries;
};
constexpr Default kDefaults[] = {{8, 0, 512}, {9, 0, 256}, {10, 0, 256}, {12, 0, 512}};

// Nobody needs to measure shorter prompts: a call of the library takes longer than all of them.
constexpr int64_t kLeastMeasured = 64;

bool is_chosen_by_default(const opdock_device_facts& facts, int64_t queries) {
  const auto version = [](uint32_t major, uint32_t minor) { return major * 100 + minor; };
  int64_t least = INT64_MAX;
  for (const Default& each : kDefaults) {
    if (version(each.arch_major, each.arch_minor) <= version(facts.arch_major, facts.arch_minor))
      least = each.least_queries;
  }
  return queries >= least;
}

// Returns the number of the situation whose fastest way is measured: sizes between two powers of
// two count as one. Way 0 is own kernels, way 1 the service.
uint64_t question_of(const Arguments& of, bool backward) {
  const auto bits = [](int64_t number) {
    uint64_t found = 0;
    while (number >> found > 1) ++found;
    return found;
  };
  const bool has_more = of.window > 0 || of.slopes;
  uint64_t question = uint64_t{1} << 60 | uint64_t{backward} << 59 | uint64_t{of.causal} << 58 |
                      uint64_t{has_more} << 57;
  question |= static_cast<uint64_t>((of.q.size(3) + 63) / 64) << 40;  // 1 to 4
  question |= bits(of.q.size(0) * of.q.size(2)) << 24 | bits(of.q.size(1)) << 16 |
              bits(of.k.size(1)) << 8 | bits(of.q.size(2) / of.k.size(2));
  return question;
}

// Returns whether the service is the faster way, of those that suit the prompt.
bool is_chosen(const opdock::CallBase& call, const Arguments& of, bool backward) {
  const int32_t measured = call.tuned(question_of(of, backward), 2);
  return measured >= 0 ? measured == 1 : is_chosen_by_default(call.facts(), of.q.size(1));
}

// Lengths, masks and biases may leave a query without keys, for which the library gives NaN, and
// the op zeros; 8-bit keys have scales.
bool has_more(const Arguments& of) {
  return of.lengths || of.mask || of.bias || of.k_scale || of.v_scale;
}

bool suits(const Arguments& of) {
  if (has_more(of) || of.q.dtype().bytes() != 2 || of.k.dtype() != of.q.dtype()) return false;
  const int64_t queries = of.q.size(1), keys = of.k.size(1);
  if (queries < kLeastMeasured || (of.causal && queries > keys)) return false;
  // Nobody sees the first keys if there is a window and more keys than queries. They may be NaN,
  // and the service multiplies them by 0.
  if (of.window > 0 && queries != keys) return false;
  return of.q.stride(3) == 1 && of.k.stride(3) == 1 && of.v.stride(3) == 1;
}

bool suits(const opdock::CallBase& call, const Arguments& of, bool backward) {
  return call.is_cuda() && suits(of) && is_chosen(call, of, backward);
}

bool suits(const opdock::CallBase& call, const Arguments& of, const Gradient& from) {
  return from.lse && !from.grad_lse && from.lse->is_contiguous() && from.grad.stride(3) == 1 &&
         from.result.stride(3) == 1 && suits(call, of, true);
}

opdock::Attention describe(const Arguments& of) {
  opdock::Attention attention(of.q, of.k, of.v);
  if (of.causal) attention.causal(true);
  attention.scale(static_cast<float>(scale_of(of))).window(of.window);
  if (of.slopes) attention.slopes(*of.slopes);
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
  if (!suits(plan, of, false)) return false;
  opdock::Attention attention = describe(of);
  if (wants_lse) attention.lse();
  return attention.plan(plan, bytes);
}

bool run_service(Call& call, const Arguments& of, Tensor out, const OptionalTensor& lse) {
  if (out.stride(3) != 1 || !suits(call, of, false)) return false;
  if (lse && !lse->is_contiguous()) return false;
  opdock::Attention attention = describe(of);
  if (lse) attention.lse(*lse);
  return attention.out(out).run(call);
}

bool plan_service(const Plan& plan, const Arguments& of, const Gradient& from, uint64_t* bytes) {
  *bytes = 0;
  return suits(plan, of, from) && describe(of, from).plan(plan, bytes);
}

bool run_service(Call& call, const Arguments& of, const Gradient& from, Tensor grad_q,
                 Tensor grad_k, Tensor grad_v) {
  if (!suits(call, of, from)) return false;
  if (grad_q.stride(3) != 1 || grad_k.stride(3) != 1 || grad_v.stride(3) != 1) return false;
  return describe(of, from).gradients(grad_q, grad_k, grad_v).run(call);
}

}  // namespace attention
