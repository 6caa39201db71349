// Implements softmax and log_softmax: checks their arguments and hands the rows to the CPU or GPU
// kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <opdock/op.hpp>

#include "device/softmax_params.cuh"
#include "softmax_cpu.h"

namespace softmax {
namespace {

using namespace opdock::usual;

constexpr auto kPlain = OPDOCK_ROW_FAMILY("softmax", 1, opdock::kLightRows);
constexpr auto kCausal = OPDOCK_ROW_FAMILY("softmax::causal", 1, opdock::kPartRows);
constexpr auto kMasked = OPDOCK_ROW_FAMILY("softmax::masked", 1, opdock::kLightRows);
// For rows of whole, aligned vectors, in the mask too.
constexpr auto kMaskedVectors = OPDOCK_ROW_FAMILY("softmax::masked_vectors", 2, opdock::kHeavyRows);

// Returns whether kMaskedVectors can handle these rows. It computes softmax with a mask; the rows
// may be at any distance from each other.
bool takes_vectors(const Params& p, int64_t bytes) {
  if (p.log || p.mask == nullptr || p.mask_step == 0 || p.length * bytes % 16 != 0) return false;
  const void* const data[] = {p.x, p.mask, p.out};
  for (int t = 0; t < 3; ++t)
    if (!opdock::rows_aligned(p.rows, t, data[t], static_cast<uint64_t>(bytes), 16)) return false;
  return true;
}

void check_mask(Tensor mask, Tensor x) {
  check(mask, "mask").same_dtype_as(x, "x").same_device_as(x, "x");
  opdock::check_rows(mask, "mask");
  check(mask, "mask").broadcasts_to(x, "x");
}

void plan(Plan& plan, Tensor x, double, OptionalTensor mask, bool causal) {
  opdock::check_row_dtype(plan, x, "x");
  if (causal) check(x, "x").ndim_at_least(2);
  if (mask) check_mask(*mask, x);
  plan.output(x.like());
}

void run(Call& call, Results outputs, Tensor x, double scale, OptionalTensor mask, bool causal,
         bool log) {
  const Tensor out = outputs[0];
  if (x.numel() == 0) return;
  Params params = {};
  params.x = x.raw();
  params.mask = opdock::raw_or_null(mask);
  params.out = out.raw();
  params.length = x.size(-1);
  params.mask_step = mask && mask->ndim() > 0 && mask->size(-1) > 1 ? 1 : 0;
  params.queries = causal ? x.size(-2) : 1;
  params.scale = static_cast<float>(scale);
  params.causal = causal;
  params.log = log;
  params.rows = opdock::make_rows<3>({x, mask, out});
  if (!call.is_cpu()) {
    const float factor = params.scale * kLog2E;
    params.is_plain = !mask && factor > 0 && std::isnormal(factor);
    const auto bytes = x.dtype().bytes();
    if (takes_vectors(params, bytes) &&
        opdock::try_launch_rows(call, kMaskedVectors, x.dtype(), opdock::RowFit::kPlain, &params))
      return;
    // The mask is read element by element where its alignment requires that.
    const opdock::RowFit fit = opdock::fit_of(params.rows, params.length, bytes,
                                              {params.x, nullptr, params.out}, {nullptr});
    const auto launch = [&](const auto& kernels) {
      return opdock::try_launch_rows(call, kernels, x.dtype(), fit, &params);
    };
    if (params.is_plain && (causal ? launch(kCausal) : launch(kPlain))) return;
    opdock::launch_rows(call, kMasked, x.dtype(), fit, &params);
    return;
  }
  const Job job = {x.dtype(), scale, params};
  using Kernel = void (*)(const Job&, int64_t, int64_t);
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(run);
  opdock::for_rows(call, params.rows.count, params.length,
                   [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

void run_softmax(Call& call, Results outputs, Tensor x, double scale, OptionalTensor mask,
                 bool causal) {
  run(call, outputs, x, scale, mask, causal, false);
}

void run_log_softmax(Call& call, Results outputs, Tensor x, double scale, OptionalTensor mask,
                     bool causal) {
  run(call, outputs, x, scale, mask, causal, true);
}

}  // namespace
}  // namespace softmax

OPDOCK_OP(softmax, softmax::plan, nullptr, softmax::run_softmax)
OPDOCK_OP(log_softmax, softmax::plan, nullptr, softmax::run_log_softmax)
