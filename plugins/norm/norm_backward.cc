// Implements the gradients of the norms: checks their arguments and hands the rows to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <opdock/op.hpp>

#include "device/norm_params.cuh"
#include "norm_checks.h"
#include "norm_cpu.h"

namespace layernorm::backward {
namespace {

constexpr auto kRows = OPDOCK_ROW_FAMILY("layernorm::backward", 2, opdock::kHeavyRows);
constexpr auto kLoopRows = OPDOCK_KERNEL_FAMILY("layernorm::backward::loop_rows", RowTypes);
constexpr auto kLoopSlices = OPDOCK_KERNEL_FAMILY("layernorm::backward::loop_slices", RowTypes);
constexpr auto kWeightSums = OPDOCK_KERNEL_FAMILY("layernorm::backward::weight_sums", RowTypes);
constexpr uint32_t kTotals = OPDOCK_KERNEL_INDEX("layernorm::backward::totals");

struct Arguments {
  Tensor grad, x;
  OptionalTensor weight, bias, grad_sum;
  double eps;
  bool centred;
};

// Returns how many clusters of 2, 4 or 8 blocks certainly run at once where each block has a
// multiprocessor to itself. One cluster too many would begin only when the others end, and all
// would wait for it. Multiprocessors come in pairs. Larger clusters lie in one of the GPU's groups
// of at most 18, which differ between GPUs of the same kind: an H100 with 132 multiprocessors had
// room for 30 clusters of 4 and 15 of 8; however its 8 groups are made up, it has room for 29 and
// 13. The driver's figure for the GPU at hand is not used, since sums over rows are to be the same
// on all GPUs of a kind.
int64_t clusters_at_once(const opdock::CallBase& call, int64_t blocks) {
  const int64_t multiprocessors = call.facts().multiprocessors;
  const int64_t sixteenths = blocks == 2 ? 16 : blocks == 4 ? 14 : 13;
  return std::max<int64_t>(1, multiprocessors * sixteenths / (16 * blocks));
}

// Decides how all gradients are computed in one pass over plain rows, where the rows fit: by one
// block on each multiprocessor, because several would keep more sums, or for longer rows by
// clusters of such blocks, each of which has a slice.
struct Loop {
  Loop(const opdock::CallBase& call, const Arguments& of) {
    const int64_t length = of.x.size(-1), rows = length == 0 ? 0 : of.x.numel() / length;
    if (call.is_cpu() || rows == 0 || (!of.weight && !of.bias)) return;
    // Shorter rows would leave lanes without work.
    if (length * of.x.dtype().bytes() < int64_t{call.facts().warp_size} * 16) return;
    const int64_t most = opdock::detail::has_sm_90(call) ? opdock::kMaxCluster : 1;
    for (int64_t blocks = 1; !fits() && blocks <= most; blocks *= 2)
      spread(call, of, length, rows, blocks);
  }
  bool fits() const { return chunks > 0; }

  int64_t chunks = 0, cluster = 1, slice = 0, team_warps = 0, threads = 0, shared = 0;

 private:
  // Spreads a row over so many blocks, if it fits.
  void spread(const opdock::CallBase& call, const Arguments& of, int64_t length, int64_t rows,
              int64_t blocks) {
    const int64_t width = call.facts().warp_size, multiprocessors = call.facts().multiprocessors;
    const int bytes = static_cast<int>(of.x.dtype().bytes());
    const bool many = blocks > 1;
    const int most_warps = kLoopThreads / static_cast<int>(width);
    const int64_t scratch =
        many ? opdock::cluster_relay_bytes(static_cast<int>(blocks), most_warps) : kLoopScratch;
    const int64_t in_warp = width * loop_room(bytes, of.grad_sum ? 3 : 2, many);
    const int64_t room = int64_t{call.facts().max_shared_bytes} - scratch;
    const int64_t most = std::min<int64_t>(most_warps, room / in_warp);
    // A slice consists of whole lines of memory (128 bytes).
    const int64_t line = blocks * 128 / bytes;
    slice = many ? (length + line - 1) / line * (line / blocks) : length;
    team_warps = (slice + width * kLoopElements - 1) / (width * kLoopElements);
    if (team_warps > most) return;
    // Few rows are spread over many blocks.
    const int64_t wanted = std::max<int64_t>(1, rows / multiprocessors);
    const int64_t teams = many ? 1 : std::min(most / team_warps, wanted);
    const int64_t at_once = many ? clusters_at_once(call, blocks) : multiprocessors;
    cluster = blocks;
    threads = teams * team_warps * width;
    shared = scratch + teams * team_warps * in_warp;
    chunks = std::min(at_once, (rows + teams - 1) / teams);
  }
};

// Layout of the workspace: the chunks' sums for weight, those for bias, and each row's moments.
struct Workspace {
  Workspace(const Arguments& of, int64_t chunks_of_rows, bool has_moments)
      : chunks(chunks_of_rows) {
    const int64_t length = of.x.size(-1), rows = length == 0 ? 0 : of.x.numel() / length;
    if (rows == 0 || (!of.weight && !of.bias)) return;
    sums = chunks * length * std::max<int64_t>(of.x.dtype().bytes(), sizeof(float));
    bias = of.weight ? sums : 0;
    moments = bias + (of.bias ? sums : 0);
    bytes = moments + (has_moments ? rows * static_cast<int64_t>(sizeof(Moments)) : 0);
  }
  int64_t chunks = 0, sums = 0, bias = 0, moments = 0, bytes = 0;
};

Workspace two_passes(const Arguments& of, bool is_cpu) {
  const int64_t length = of.x.size(-1), rows = length == 0 ? 0 : of.x.numel() / length;
  return {of, rows == 0 ? 0 : opdock::column_chunks(rows, length).count, !is_cpu};
}

void plan(Plan& plan, const Arguments& of) {
  check_numbers(plan, of.x, of.eps);
  plan.output(of.x.like());
  if (of.weight) plan.output(of.weight->like());
  if (of.bias) plan.output(of.bias->like());
  // Whether the rows are plain is known only at run time, so the workspace fits both methods.
  int64_t bytes = two_passes(of, plan.is_cpu()).bytes;
  if (const Loop loop(plan, of); loop.fits())
    bytes = std::max(bytes, Workspace(of, loop.chunks, false).bytes);
  plan.workspace(static_cast<uint64_t>(bytes));
}

// The gradients that are wanted in addition to that of x.
struct Gradients {
  OptionalTensor weight, bias;
};

// Describes how chunks of rows are summed into the workspace.
WeightParams column_sums(const Call& call, const Arguments& of, const Workspace& at,
                         const Gradients& into) {
  WeightParams sums = {};
  if (!into.weight && !into.bias) return sums;
  const int64_t length = of.x.size(-1);
  sums.at = opdock::make_elements<2>({of.grad, of.x}, length, {}, true);
  sums.sums = opdock::make_column_sums<2>(call, sums.at, of.x.dtype().bytes(), {-1, -1}, length);
  char* const workspace = static_cast<char*>(call.workspace());
  if (into.weight) sums.sums.partial[0] = workspace;
  if (into.bias) sums.sums.partial[1] = workspace + at.bias;
  return sums;
}

void run_on_cpu(const Call& call, const BackwardParams& params, const Arguments& of,
                const Gradients& into) {
  static const auto kernel = OPDOCK_SIMD_CHOOSE(run_backward);
  const WeightParams sums = column_sums(call, of, two_passes(of, true), into);
  const BackwardJob job = {of.x.dtype(), of.eps, params, sums.sums};
  if (!into.weight && !into.bias)
    return opdock::for_rows(call, params.rows.count, params.length,
                            [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
  static const auto chunks = OPDOCK_SIMD_CHOOSE(run_backward_chunks);
  static const auto totals = OPDOCK_SIMD_CHOOSE(column_totals);
  call.parallel_for(job.sums.chunks.count, 1,
                    [&](int64_t begin, int64_t end) { chunks(job, begin, end); });
  const OptionalTensor* const found[] = {&into.weight, &into.bias};
  for (int s = 0; s < 2; ++s) {
    if (!*found[s]) continue;
    const Tensor out = **found[s];
    const ColumnJob columns = {job.dtype, job.sums.partial[s], job.sums.chunks.count, params.length,
                               out.raw()};
    call.parallel_for(out.numel(), std::max<int64_t>(64, 16384 / columns.chunks),
                      [&](int64_t begin, int64_t end) { totals(columns, begin, end); });
  }
}

// Launches the one-pass kernels; returns false if the rows do not suit them.
bool run_loop(const Call& call, const BackwardParams& rows, const Arguments& of, opdock::RowFit fit,
              const Gradients& into) {
  const Loop loop(call, of);
  if (!loop.fits() || fit != opdock::RowFit::kPlain) return false;
  const Workspace at(of, loop.chunks, false);
  char* const workspace = static_cast<char*>(call.workspace());
  LoopParams params = {rows, {}, static_cast<int>(loop.team_warps), static_cast<int>(loop.slice)};
  if (into.weight) params.sums[0] = reinterpret_cast<float*>(workspace);
  if (into.bias) params.sums[1] = reinterpret_cast<float*>(workspace + at.bias);
  const int64_t blocks = loop.chunks * loop.cluster;
  opdock::Launch how = {blocks, loop.threads, static_cast<uint32_t>(loop.shared)};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, loop.threads);
  if (loop.cluster > 1) how.cluster = opdock::Dim3(loop.cluster);
  const opdock::Dtype dtype = of.x.dtype();
  call.launch(loop.cluster > 1 ? kLoopSlices(dtype) : kLoopRows(dtype), how, params);
  opdock::launch_column_totals(call, kTotals, {params.sums[0], params.sums[1]}, loop.chunks,
                               {into.weight, into.bias});
  return true;
}

void run_on_gpu(const Call& call, BackwardParams* params, const Arguments& of,
                const Gradients& into) {
  const opdock::Dtype dtype = of.x.dtype();
  const opdock::RowFit fit =
      opdock::fit_of(params->rows, params->length, dtype.bytes(),
                     {params->x, params->grad, params->out, params->grad_sum}, {params->weight});
  const bool has_sums = into.weight || into.bias;
  if (has_sums && run_loop(call, *params, of, fit, into)) return;
  const Workspace at = two_passes(of, false);
  char* const workspace = static_cast<char*>(call.workspace());
  if (has_sums) params->moments = reinterpret_cast<Moments*>(workspace + at.moments);
  opdock::launch_rows(call, kRows, dtype, fit, params);
  if (!has_sums) return;
  WeightParams sums = column_sums(call, of, at, into);
  sums.moments = params->moments;
  opdock::launch_column_chunks(call, kWeightSums(dtype), sums.at, sums.sums, sums);
  opdock::launch_column_totals(call, kTotals, {sums.sums.partial[0], sums.sums.partial[1]},
                               at.chunks, {into.weight, into.bias});
}

// Sets the gradients of weight and bias to 0, the sum of no rows.
void zero(const Call& call, const Gradients& sums) {
  if (!call.is_cpu())
    return opdock::launch_column_totals(call, kTotals, {}, 0, {sums.weight, sums.bias});
  for (const OptionalTensor& each : {sums.weight, sums.bias})
    if (each && each->numel() != 0)
      std::memset(each->raw(), 0, static_cast<size_t>(each->numel() * each->dtype().bytes()));
}

void run(Call& call, Results results, const Arguments& of) {
  const Tensor out = results[0];
  const Gradients into = {of.weight ? results.optional(1) : std::nullopt,
                          of.bias ? results.optional(2) : std::nullopt};
  if (of.x.numel() == 0) return zero(call, into);
  BackwardParams params = {};
  params.x = of.x.raw();
  params.grad = of.grad.raw();
  params.grad_sum = of.grad_sum ? of.grad_sum->raw() : nullptr;
  params.weight = of.weight ? of.weight->raw() : nullptr;
  params.out = out.raw();
  params.length = of.x.size(-1);
  params.eps = static_cast<float>(of.eps);
  params.share = 1.0f / static_cast<float>(params.length);
  params.centred = of.centred;
  params.rows = opdock::make_rows<4>({of.x, of.grad, out, of.grad_sum});
  if (call.is_cpu())
    run_on_cpu(call, params, of, into);
  else
    run_on_gpu(call, &params, of, into);
}

void plan_layer_norm(Plan& of, Tensor grad, Tensor x, OptionalTensor weight, OptionalTensor bias,
                     OptionalTensor grad_sum, double eps) {
  plan(of, {grad, x, weight, bias, grad_sum, eps, true});
}
void run_layer_norm(Call& call, Results results, Tensor grad, Tensor x, OptionalTensor weight,
                    OptionalTensor bias, OptionalTensor grad_sum, double eps) {
  run(call, results, {grad, x, weight, bias, grad_sum, eps, true});
}

void plan_rms_norm(Plan& of, Tensor grad, Tensor x, OptionalTensor weight, OptionalTensor grad_sum,
                   double eps) {
  plan(of, {grad, x, weight, {}, grad_sum, eps, false});
}
void run_rms_norm(Call& call, Results results, Tensor grad, Tensor x, OptionalTensor weight,
                  OptionalTensor grad_sum, double eps) {
  run(call, results, {grad, x, weight, {}, grad_sum, eps, false});
}

}  // namespace
}  // namespace layernorm::backward

OPDOCK_OP(layer_norm_backward, layernorm::backward::plan_layer_norm, nullptr,
          layernorm::backward::run_layer_norm)
OPDOCK_OP(rms_norm_backward, layernorm::backward::plan_rms_norm, nullptr,
          layernorm::backward::run_rms_norm)
