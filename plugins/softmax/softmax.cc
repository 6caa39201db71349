// Implements softmax and log_softmax: checks their arguments and hands the rows to the CPU or GPU
// kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <opdock/row_op.hpp>

#include "device/softmax_params.cuh"
#include "softmax_cpu.h"

namespace softmax {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;

using opdock::KernelNumbers;
using opdock::RowEdges;
using opdock::RowTypes;

constexpr opdock::RowKernels kPlain = {
    1, opdock::kLightRows,
    OPDOCK_KERNEL_FAMILY("softmax::narrow_rows", RowTypes, KernelNumbers<2>, RowEdges),
    OPDOCK_KERNEL_FAMILY("softmax::block_rows", RowTypes, KernelNumbers<2, 4, 8>, RowEdges),
    OPDOCK_KERNEL_FAMILY("softmax::long_rows", RowTypes)};
constexpr opdock::RowKernels kCausal = {
    1, opdock::kPartRows,
    OPDOCK_KERNEL_FAMILY("softmax::causal::narrow_rows", RowTypes, KernelNumbers<4>,
                         KernelNumbers<0>),
    OPDOCK_KERNEL_FAMILY("softmax::causal::block_rows", RowTypes, KernelNumbers<4, 8>,
                         KernelNumbers<0>),
    opdock::NoKernels{}};
constexpr opdock::RowKernels kMasked = {
    1, opdock::kLightRows,
    OPDOCK_KERNEL_FAMILY("softmax::masked::narrow_rows", RowTypes, KernelNumbers<2>,
                         KernelNumbers<1>),
    OPDOCK_KERNEL_FAMILY("softmax::masked::block_rows", RowTypes, KernelNumbers<2>,
                         KernelNumbers<1>),
    OPDOCK_KERNEL_FAMILY("softmax::masked::long_rows", RowTypes)};
// For rows of whole, aligned vectors, in the mask too.
constexpr opdock::RowKernels kMaskedVectors = {
    2, opdock::kHeavyRows,
    OPDOCK_KERNEL_FAMILY("softmax::masked_vectors::narrow_rows", RowTypes, KernelNumbers<2>,
                         KernelNumbers<0>),
    OPDOCK_KERNEL_FAMILY("softmax::masked_vectors::block_rows", RowTypes, KernelNumbers<2, 4>,
                         KernelNumbers<0>),
    opdock::NoKernels{}};

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

void plan(Plan& plan, Tensor x, double, std::optional<Tensor> mask, bool causal) {
  opdock::check_first_rows(plan, x, "x", causal ? 2 : 1);
  if (mask) check_mask(*mask, x);
  plan.output(x.like());
}

// Checks the output, which may be x itself; otherwise it shares no memory with an argument.
void check_output(Tensor out, Tensor x, const std::optional<Tensor>& mask) {
  opdock::check_rows(out, "output 0");
  check(out, "output 0").in_place_or_apart_from(x, "x");
  if (mask) check(out, "output 0").no_overlap_with(*mask, "mask");
}

void run(Call& call, Results outputs, Tensor x, double scale, std::optional<Tensor> mask,
         bool causal, bool log) {
  const Tensor out = outputs[0];
  check_output(out, x, mask);
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

void run_softmax(Call& call, Results outputs, Tensor x, double scale, std::optional<Tensor> mask,
                 bool causal) {
  run(call, outputs, x, scale, mask, causal, false);
}

void run_log_softmax(Call& call, Results outputs, Tensor x, double scale,
                     std::optional<Tensor> mask, bool causal) {
  run(call, outputs, x, scale, mask, causal, true);
}

}  // namespace
}  // namespace softmax

OPDOCK_OP(softmax, softmax::plan, nullptr, softmax::run_softmax)
OPDOCK_OP(log_softmax, softmax::plan, nullptr, softmax::run_log_softmax)
