// Implements top_k_gating, moe_scatter and moe_gather.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "ragged.h"

namespace ragged {
namespace {

constexpr auto kRoute = OPDOCK_KERNEL_FAMILY("ragged::route", opdock::RowTypes);
constexpr uint32_t kNumber = OPDOCK_KERNEL_INDEX("ragged::number");
constexpr auto kScatter = OPDOCK_KERNEL_FAMILY("ragged::scatter", opdock::RowTypes);
constexpr auto kGather = OPDOCK_KERNEL_FAMILY("ragged::gather", opdock::RowTypes);

// Kernels count the rows of experts in 32 bits.
void check_rows_fit(int64_t tokens, int64_t k) {
  if (k == 0 || tokens <= 0x7fffffff / k) return;
  throw Error(OPDOCK_UNSUPPORTED, concat("found ", tokens, " tokens with ", k,
                                         " experts each, wanted less than 2^31 rows in all; pass "
                                         "fewer tokens at a time"));
}

// ---------------------------------------------------------------------------------------- gating

void plan_gating(Plan& plan, Tensor logits, Tensor batch, int64_t k) {
  check_element(logits, "logits");
  check(logits, "logits").ndim(2);
  check(batch, "batch").dtype(dtype_of<int32_t>()).shape({2});
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  if (k < 1 || k > experts)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'k': found ", k, ", wanted 1 to ", experts,
                       ", the experts that 'logits' has columns for; pass fewer"));
  check_rows_fit(tokens, k);
  plan.output(opdock::Layout(dtype_of<int32_t>(), {experts}));
  plan.output(opdock::Layout(dtype_of<float>(), {tokens, k}));
  plan.output(opdock::Layout(dtype_of<int32_t>(), {tokens, k}));
  plan.output(opdock::Layout(dtype_of<int32_t>(), {tokens, k}));
}

template <class T>
void route_token(const GateParams& p, int64_t token) {
  const T* const logits = static_cast<const T*>(p.logits) + token * p.row;
  const auto key = [&](int e) {
    const float logit = static_cast<float>(logits[e]);
    return std::isnan(logit) ? std::numeric_limits<float>::infinity() : logit;
  };
  int last = -1;
  float most = 0, sum = 0;
  for (int i = 0; i < p.k; ++i) {
    int best = -1;
    for (int e = 0; e < p.count; ++e) {
      // Experts that were taken are skipped; the first of equal ones is taken first.
      if (last >= 0 && !(key(e) < key(last) || (key(e) == key(last) && e > last))) continue;
      if (best < 0 || key(e) > key(best)) best = e;
    }
    last = best;
    if (i == 0) {
      most = static_cast<float>(logits[best]);
      for (int e = 0; e < p.count; ++e) sum += std::exp(static_cast<float>(logits[e]) - most);
    }
    const int64_t at = token * p.k + i;
    p.scores[at] = std::exp(static_cast<float>(logits[best]) - most) / sum;
    p.assignments[at] = best;
    p.offsets[at] = p.experts[best]++;
  }
}

void run_gating(Call& call, Results results, Tensor logits, Tensor batch, int64_t k) {
  for (size_t i = 0; i < 4; ++i)
    check(results[i], concat("output ", i).c_str()).contiguous().aligned();
  GateParams p = {};
  p.logits = logits.raw();
  p.row = row_stride(logits);
  p.counts = batch.data<int32_t>();
  p.experts = results[0].data<int32_t>();
  p.scores = results[1].data<float>();
  p.assignments = results[2].data<int32_t>();
  p.offsets = results[3].data<int32_t>();
  p.tokens = logits.size(0);
  p.count = static_cast<int>(logits.size(1));
  p.k = static_cast<int>(k);
  if (!call.is_cpu()) {
    const int64_t warps = kRouteThreads / call.facts().warp_size;
    if (p.tokens > 0)
      launch_blocks(call, kRoute(logits.dtype()), (p.tokens + warps - 1) / warps, kRouteThreads, p,
                    "tokens");
    return launch_blocks(call, kNumber, p.count, kRouteThreads, p, "experts");
  }
  std::fill_n(p.experts, p.count, 0);
  for_type(logits, "logits", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t token = 0; token < p.tokens; ++token) {
      if (token < p.counts[0]) {
        route_token<T>(p, token);
        continue;
      }
      std::fill_n(p.scores + token * k, k, 0.0f);
      std::fill_n(p.assignments + token * k, k, -1);
      std::fill_n(p.offsets + token * k, k, -1);
    }
  });
}

// --------------------------------------------------------------------------- scatter and gather

void plan_scatter(Plan& plan, Tensor x, Tensor counts, Tensor assignments, Tensor offsets) {
  check_element(x, "x");
  check(x, "x").ndim(2);
  check(counts, "counts").dtype(dtype_of<int32_t>()).ndim(1);
  check(assignments, "assignments").dtype(dtype_of<int32_t>()).ndim(2).size(0, x.size(0));
  check(offsets, "offsets").dtype(dtype_of<int32_t>()).same_shape_as(assignments, "assignments");
  check_rows_fit(x.size(0), assignments.size(1));
  const int64_t rows = assignments.size(0) * assignments.size(1);
  plan.output(opdock::Layout(x.dtype(), {rows, x.size(1)}));
  plan.output(counts.like().with_dtype(dtype_of<int64_t>()));
  plan.output(assignments.like());
}

template <class T>
void scatter_tokens(const ScatterParams& p) {
  T* const out = static_cast<T*>(p.out);
  const int64_t rows = p.tokens * p.k, used = p.count > 0 ? p.sums[p.count - 1] : 0;
  for (int64_t row = std::max<int64_t>(used, 0); row < rows; ++row)
    std::fill_n(out + row * p.columns, p.columns, T(0.0f));
  for (int64_t at = 0; at < rows; ++at) {
    const int expert = p.assignments[at];
    int64_t slot = -1;
    if (expert >= 0 && expert < p.count)
      slot = (expert > 0 ? p.sums[expert - 1] : 0) + p.offsets[at];
    if (slot < 0 || slot >= rows) slot = -1;
    p.slots[at] = static_cast<int>(slot);
    if (slot < 0) continue;
    const T* const from = static_cast<const T*>(p.x) + at / p.k * p.x_row;
    std::copy_n(from, p.columns, out + slot * p.columns);
  }
}

void run_scatter(Call& call, Results results, Tensor x, Tensor counts, Tensor assignments,
                 Tensor offsets) {
  for (size_t i = 0; i < 3; ++i)
    check(results[i], concat("output ", i).c_str()).contiguous().aligned();
  ScatterParams p = {};
  p.x = x.raw();
  p.x_row = row_stride(x);
  p.experts = counts.data<int32_t>();
  p.assignments = assignments.data<int32_t>();
  p.offsets = offsets.data<int32_t>();
  p.out = results[0].raw();
  p.sums = static_cast<long long*>(results[1].raw());
  p.slots = results[2].data<int32_t>();
  p.tokens = x.size(0);
  p.columns = x.size(1);
  p.count = static_cast<int>(counts.size(0));
  p.k = static_cast<int>(assignments.size(1));
  p.by_vectors = Vectors(x).row(x).address(p.out).elements(p.columns).fit();
  if (!call.is_cpu()) {
    const int64_t warps = kRouteThreads / call.facts().warp_size;
    const int64_t blocks = p.tokens + (p.count + warps - 1) / warps;
    if (blocks == 0) return;
    return launch_blocks(call, kScatter(x.dtype()), blocks, kRouteThreads, p, "tokens");
  }
  long long sum = 0;
  for (int e = 0; e < p.count; ++e) p.sums[e] = sum += p.experts[e];
  for_type(x, "x", [&](auto tag) { scatter_tokens<typename decltype(tag)::type>(p); });
}

void plan_gather(Plan& plan, Tensor x, Tensor scores, Tensor slots, OptionalTensor counts, bool) {
  check_element(x, "x");
  check(x, "x").ndim(2);
  check(slots, "slots").dtype(dtype_of<int32_t>()).ndim(2);
  check(scores, "scores").dtype(dtype_of<float>()).same_shape_as(slots, "slots");
  if (counts) check(*counts, "counts").dtype(dtype_of<int32_t>()).ndim(1);
  check_rows_fit(slots.size(0), slots.size(1));
  plan.output(opdock::Layout(x.dtype(), {slots.size(0), x.size(1)}));
}

template <class T>
void gather_token(const GatherParams& p, int64_t token) {
  const float* const scores = p.scores + token * p.k;
  float all = 0;
  for (int i = 0; i < p.k; ++i) all += scores[i];
  const float factor = p.normalize && all != 0 ? 1 / all : 1;
  T* const to = static_cast<T*>(p.out) + token * p.columns;
  for (int64_t column = 0; column < p.columns; ++column) {
    float sum = 0;
    for (int i = 0; i < p.k; ++i) {
      const int64_t slot = p.slots[token * p.k + i];
      if (slot < 0 || slot >= p.x_rows) continue;
      const T* const from = static_cast<const T*>(p.x) + slot * p.x_row;
      sum += scores[i] * factor * static_cast<float>(from[column]);
    }
    to[column] = T(sum);
  }
}

void run_gather(Call& call, Results results, Tensor x, Tensor scores, Tensor slots,
                OptionalTensor counts, bool normalize) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous().aligned();
  GatherParams p = {};
  p.x = x.raw();
  p.x_row = row_stride(x);
  p.x_rows = x.size(0);
  p.scores = scores.data<float>();
  p.slots = slots.data<int32_t>();
  p.out = out.raw();
  p.tokens = out.size(0);
  p.columns = out.size(1);
  p.k = static_cast<int>(slots.size(1));
  p.normalize = normalize;
  if (counts) {
    p.experts = counts->data<int32_t>();
    p.count = static_cast<int>(counts->size(0));
  }
  p.by_vectors = Vectors(x).row(x).address(p.out).elements(p.columns).fit();
  if (!call.is_cpu()) {
    // One block at least, because the counts are to be cleared also where there is nothing to add.
    if (p.tokens == 0 && p.count == 0) return;
    return launch_blocks(call, kGather(x.dtype()), std::max<int64_t>(1, p.tokens), kRouteThreads, p,
                         "tokens");
  }
  if (p.experts) std::fill_n(p.experts, p.count, 0);
  for_type(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t each = std::max<int64_t>(1, p.columns * p.k);
    call.parallel_for(p.tokens, std::max<int64_t>(1, kGrain / each),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t t = begin; t < end; ++t) gather_token<T>(p, t);
                      });
  });
}

}  // namespace
}  // namespace ragged

OPDOCK_OP(top_k_gating, ragged::plan_gating, nullptr, ragged::run_gating)
OPDOCK_OP(moe_scatter, ragged::plan_scatter, nullptr, ragged::run_scatter)
OPDOCK_OP(moe_gather, ragged::plan_gather, nullptr, ragged::run_gather)
