// Implements sum_quantized: adds quantised tensors and quantises the sum.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "quantizer.h"

namespace quantizer {
namespace {

constexpr auto kSum =
    OPDOCK_KERNEL_FAMILY("quantizer::sum", KernelNumbers<4, 8>, KernelNumbers<0, 1>);

void plan_sum(Plan& plan, Tensor q, Tensor params, int64_t tensors, int64_t groups, int64_t bits) {
  check(q, "q").dtype(dtype_of<int8_t>()).ndim_at_least(1);
  check_params(params, q);
  check_bits(bits);
  if (tensors < 1 || tensors > 0x7fffffff || q.size(-1) % tensors != 0)
    fail("tensors", concat(tensors, " for a last size of ", q.size(-1)),
         "a number that divides it, because the tensors are parts of q");
  const int64_t numel = q.numel() * (8 / bits) / tensors;
  if (params.size(0) % tensors != 0)
    fail("params", concat(params.size(0), " groups of ", tensors, " tensors"),
         "equally many groups of each; pass those of all tensors");
  if (numel > 0) check_groups(params.size(0) / tensors, numel, bits, "params");
  check_groups(groups, numel, bits, "groups");
  plan.output(q.like().with_size(-1, q.size(-1) / tensors));
  plan.output(opdock::Layout(dtype_of<float>(), {groups, params.size(1)}));
}

// Adds up the elements of a group, in the order of the tensors.
void add_group(const Source& from, int64_t bits, int64_t begin, std::vector<float>* sums) {
  const int64_t length = from.length.divisor;
  std::fill(sums->begin(), sums->end(), 0.0f);
  for (int64_t i = 0; i < from.tensors; ++i) {
    const signed char* const q = from.q + i * from.numel / (8 / bits);
    for (size_t k = 0; k < sums->size(); ++k) {
      const int64_t at = begin + static_cast<int64_t>(k), group = i * from.groups + at / length;
      const float step = from.params[from.is_symmetric ? group : 2 * group];
      const float offset = from.is_symmetric ? 0.0f : from.params[2 * group + 1];
      const float number = static_cast<float>(signed_number(q, at, bits));
      (*sums)[k] = std::fma(number, step, (*sums)[k]) + offset;
    }
  }
}

void run_sum(Call& call, Results results, Tensor q, Tensor params, int64_t tensors, int64_t,
             int64_t bits) {
  const Format format = {static_cast<int>(bits), params.size(1) == 1, false};
  SumParams all = {};
  all.from = make_source(q, params, bits, tensors);
  all.to = make_target(results[0], results[1], all.from.numel, format);
  if (!call.is_cpu()) {
    const int plain = is_plain(all.to) && all.from.even && all.from.aligned;
    return launch_groups(call, kSum(bits, plain), 2, &all);
  }
  call.parallel_for(all.to.groups, std::max<int64_t>(1, kGrain / (all.to.length * tensors + 1)),
                    [&](int64_t begin, int64_t end) {
                      std::vector<float> sums(static_cast<size_t>(all.to.length));
                      for (int64_t group = begin; group < end; ++group) {
                        add_group(all.from, bits, group * all.to.length, &sums);
                        quantize_group(all.to, group, sums.data());
                      }
                    });
}

}  // namespace
}  // namespace quantizer

OPDOCK_OP(sum_quantized, quantizer::plan_sum, nullptr, quantizer::run_sum)
