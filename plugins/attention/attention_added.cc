// Implements attention_added_backward, the gradient of a tensor that is added to the scores: checks
// its arguments, plans a GPU's launch, and runs it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/op.hpp>
#include <vector>

#include "attention_backward_launch.h"
#include "attention_cpu.h"
#include "attention_launch.h"
#include "attention_passes.h"

namespace attention {
namespace {

constexpr auto kScores = OPDOCK_KERNEL_FAMILY("attention::added_scores", opdock::RowTypes);
constexpr auto kTiles = OPDOCK_KERNEL_FAMILY("attention::added_tiles",
                                             opdock::KernelTypes<opdock::half, opdock::bfloat16>,
                                             opdock::KernelNumbers<64, 128>);

// Fills in everything except `out` and its strides.
AddedParams make_added_params(const BackwardArguments& a, Tensor added) {
  AddedParams params = {};
  params.b = make_backward_params(a);
  for (int dim = 0; dim < 4; ++dim) params.sums[dim] = added.size(dim) == 1;
  params.wide = added.dtype() != a.of.q.dtype();
  params.batches = static_cast<int>(a.of.q.size(0));
  return params;
}

// Returns how many tiles of queries and keys the scores of a head have.
int64_t tiles(const Params& p, int64_t queries, int64_t keys, bool of_queries, bool of_keys) {
  return (of_queries ? divide_up(p.queries, queries) : 1) * (of_keys ? divide_up(p.keys, keys) : 1);
}

bool is_by_tiles(const Plan& plan, const BackwardChoice& choice, const AddedParams& a) {
  const Params& p = a.b.p;
  // A block counts its steps in 32 bits.
  const int64_t steps = (a.sums[0] ? a.batches : 1) * int64_t{a.sums[1] ? p.heads : 1} *
                        tiles(p, kTileVectors, kStreamVectors, a.sums[2], a.sums[3]);
  return choice.by_tiles && steps <= 0x7fffffff / (2 * kStreamVectors) &&
         int64_t{added_tile_bytes(choice.size)} <= plan.facts().max_shared_bytes;
}

struct AddedChoice {
  BackwardChoice rows;
  bool by_tiles;
};

void plan_it(Plan& plan, const BackwardArguments& a, const OptionalTensor& wanted) {
  check_gradient(plan, a);
  if (!wanted) return;
  const Tensor added = *wanted;
  check(added, "added").dtype(dtype_of<float>(), a.of.q.dtype()).ndim(4);
  const int64_t sizes[] = {a.of.q.size(0), a.of.q.size(2), a.of.q.size(1), a.of.k.size(1)};
  for (int32_t dim = 0; dim < 4; ++dim)
    if (added.size(dim) != 1) check(added, "added").size(dim, sizes[dim]);
  plan.output(added.like());
  if (plan.is_cpu()) return plan.workspace(row_bytes_on_cpu(a.of.q));
  const AddedParams params = make_added_params(a, added);
  const BackwardChoice rows = choose_backward(plan, a.of, a.grad, a.result, params.b);
  plan.workspace(backward_workspace_bytes(rows, a.of.q));
  plan.state(AddedChoice{rows, is_by_tiles(plan, rows, params)});
}

void run_on_cpu(Call& call, const AddedParams& params, const Arguments& of) {
  const Params& p = params.b.p;
  check_lengths(p, of.q.size(0));
  const BackwardJob job = {of.q.dtype(), params.b, scale_of(of), 0, 0};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(added_units);
  const int64_t units = int64_t{params.count(0, params.batches)} * params.count(1, p.heads) *
                        params.count(2, p.queries);
  const int64_t scores = of.q.numel() / p.size * p.keys;
  // Waking a second thread pays off for about ten microseconds of work.
  const int64_t each = scores / std::max<int64_t>(1, units) * p.size + 1;
  call.parallel_for(units, std::max<int64_t>(1, 16384 / each), [&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(p.keys));
    kernel(job, params, sums.data(), begin, end);
  });
}

void run_it(Call& call, Tensor out, const BackwardArguments& a, Tensor added) {
  check(out, "output 0").aligned();
  if (out.numel() == 0) return;
  AddedParams params = make_added_params(a, added);
  params.out = out.raw();
  for (int dim = 0; dim < 4; ++dim) params.strides[dim] = params.sums[dim] ? 0 : out.stride(dim);
  params.b.rows = call.workspace();
  if (a.of.q.numel() == 0) params.b.p.group = 1;  // no row is left, and all sums are 0
  if (call.is_cpu()) return run_on_cpu(call, params, a.of);
  const AddedChoice& choice = call.state<AddedChoice>();
  if (a.of.q.numel() > 0) launch_row_sums(call, choice.rows, a.of, &params.b);
  const Params& p = params.b.p;
  const int queries = choice.by_tiles ? kTileVectors : kAddedTile;
  const int keys = choice.by_tiles ? kStreamVectors : kAddedTile;
  const int threads = choice.by_tiles ? kTileThreads : kAddedThreads;
  const int64_t x = tiles(p, queries, keys, !params.sums[2], !params.sums[3]),
                y = params.count(1, p.heads), z = params.count(0, params.batches);
  opdock::Launch how = {
      opdock::Dim3(x, y, z), threads,
      static_cast<uint32_t>(choice.by_tiles ? added_tile_bytes(choice.rows.size) : 0)};
  how.flags = opdock::detail::pdl_launch_flags(call, x * y * z, threads);
  call.launch(choice.by_tiles ? kTiles(a.of.q.dtype(), choice.rows.size) : kScores(a.of.q.dtype()),
              how, params);
}

void plan_added(Plan& plan, Tensor grad, Tensor q, Tensor k, Tensor v, Tensor result,
                OptionalTensor added, OptionalTensor lse, OptionalTensor grad_lse,
                OptionalTensor lengths, OptionalTensor mask, OptionalTensor bias,
                OptionalTensor slopes, std::optional<double> scale, bool causal, int64_t window) {
  plan_it(plan,
          gathered(grad, q, k, v, result, lse, grad_lse, lengths, mask, bias, slopes, scale, causal,
                   window),
          added);
}
void run_added(Call& call, Results results, Tensor grad, Tensor q, Tensor k, Tensor v,
               Tensor result, OptionalTensor added, OptionalTensor lse, OptionalTensor grad_lse,
               OptionalTensor lengths, OptionalTensor mask, OptionalTensor bias,
               OptionalTensor slopes, std::optional<double> scale, bool causal, int64_t window) {
  if (!added) return;
  run_it(call, results[0],
         gathered(grad, q, k, v, result, lse, grad_lse, lengths, mask, bias, slopes, scale, causal,
                  window),
         *added);
}

}  // namespace
}  // namespace attention

OPDOCK_OP(attention_added_backward, attention::plan_added, nullptr, attention::run_added)
