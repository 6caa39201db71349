// Implements token_sort.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/op.hpp>

#include "device/tokens_params.cuh"

namespace random_ltd {
namespace {

using namespace opdock::usual;

constexpr uint32_t kSort = OPDOCK_KERNEL_INDEX("random_ltd::sort_tokens");
constexpr int64_t kGrain = 4096;  // numbers that are worth waking a CPU thread for

void plan_sort(Plan& plan, Tensor index, int64_t tokens) {
  check(index, "index").dtype(dtype_of<int32_t>()).ndim_at_least(1);
  if (tokens < 0)
    throw Error(OPDOCK_INVALID_ARGUMENT, concat("argument 'tokens': found ", tokens,
                                                ", wanted how many tokens there are, 0 or more"));
  plan.output(index.like());
}

void sort_on_cpu(const SortParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int* const index = p.index + row * p.kept;
    int* const out = p.out + row * p.kept;
    for (int64_t i = 0; i < p.kept; ++i)
      if (index[i] < 0 || index[i] >= p.tokens)
        throw Error(OPDOCK_INVALID_ARGUMENT,
                    concat("argument 'index': found ", index[i], " in row ", row,
                           ", wanted numbers from 0 to ", p.tokens - 1,
                           "; pass how many tokens there are as 'tokens'"));
    std::copy(index, index + p.kept, out);
    std::sort(out, out + p.kept);
  }
}

void run_sort(Call& call, Results results, Tensor index, int64_t tokens) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous();
  if (index.is_empty()) return;
  SortParams params = {};
  params.index = index.data<const int32_t>();
  params.out = out.data<int32_t>();
  params.kept = index.size(-1);
  params.rows = index.numel() / params.kept;
  params.tokens = tokens;
  if (call.is_cpu()) {
    call.parallel_for(params.rows, std::max<int64_t>(1, kGrain / params.kept),
                      [&](int64_t begin, int64_t end) { sort_on_cpu(params, begin, end); });
    return;
  }
  constexpr int64_t kMaxBlocks = (int64_t{1} << 32) / kThreads - 1;  // as AMD's driver takes them
  const int64_t blocks = std::min<int64_t>(params.rows, kMaxBlocks);
  opdock::Launch how = {blocks, kThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kThreads);
  call.launch(kSort, how, params);
}

}  // namespace
}  // namespace random_ltd

OPDOCK_OP(token_sort, random_ltd::plan_sort, nullptr, random_ltd::run_sort)
