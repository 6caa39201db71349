// Normalises rows with the kernels of this plugin. Another plugin may use them too: it links to
// this file, norm_checks.h, norm_cpu.cc, norm_cpu.h, norm_simd.h and device/ norm.cuh, moments.cuh,
// norm_params.cuh, and lists the kernels in namespace layernorm that are named here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/norm_params.cuh"
#include "norm_checks.h"
#include "norm_cpu.h"

namespace layernorm {

// norm(x + residual + input_bias) * weight + bias, where norm is an rms norm if not centred. All
// tensors have been checked; input_bias is present only if residual is. Without input_bias, sum is
// present if residual is.
struct NormTask {
  Tensor x;
  OptionalTensor residual = {}, input_bias = {}, weight = {}, bias = {};
  double eps;
  bool centred;
  Tensor out;
  OptionalTensor sum = {};
};

// Fills in the parameters; x must have elements.
inline Params make_params(const NormTask& of) {
  Params params = {};
  params.x = of.x.raw();
  params.residual = opdock::raw_or_null(of.residual);
  params.input_bias = opdock::raw_or_null(of.input_bias);
  params.weight = opdock::raw_or_null(of.weight);
  params.bias = opdock::raw_or_null(of.bias);
  params.out = of.out.raw();
  // The normalised sum needs a tensor in any case: without `sum`, it is written to `out` first.
  const OptionalTensor sum = of.residual && !of.sum ? of.out : of.sum;
  params.sum = opdock::raw_or_null(sum);
  params.length = of.x.size(-1);
  params.eps = static_cast<float>(of.eps);
  params.share = 1.0f / static_cast<float>(params.length);
  params.centred = of.centred;
  params.rows = opdock::make_rows<4>({of.x, of.residual, of.out, sum});
  return params;
}

inline void run_on_cpu(const Call& call, const NormTask& of, const Params& params) {
  const Job job = {of.x.dtype(), of.eps, params};
  using Kernel = void (*)(const Job&, int64_t, int64_t);
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(run);
  opdock::for_rows(call, params.rows.count, params.length,
                   [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

inline opdock::RowFit fit_of(const NormTask& of, const Params& params) {
  // Each row reads input_bias again, so its alignment counts like that of the rows.
  if (of.input_bias)
    return opdock::fit_of(
        opdock::make_rows<5>({of.x, of.residual, of.out, of.sum, of.input_bias}), params.length,
        of.x.dtype().bytes(),
        {params.x, params.residual, params.out, opdock::raw_or_null(of.sum), params.input_bias},
        {params.weight, params.bias});
  return opdock::fit_of(params.rows, params.length, of.x.dtype().bytes(),
                        {params.x, params.residual, params.out, params.sum},
                        {params.weight, params.bias});
}

inline constexpr auto kNorm = OPDOCK_ROW_FAMILY("layernorm", 1, opdock::kHeavyRows);
// rms_norm reduces a row once: giving each thread more of the row is faster (on an H100,
// docs/concepts/performance.md).
inline constexpr opdock::RowStrategy kRmsRows[] = {{2, 256}, {8, 0}};
inline constexpr auto kRmsNorm = kNorm.with(kRmsRows);
// For 16-bit elements.
inline constexpr opdock::RowStrategy kNarrowRmsRows[] = {{2, 128}, {8, 0}};
inline constexpr auto kNarrowRmsNorm = kNorm.with(kNarrowRmsRows);
inline constexpr auto kNarrowNorm = kNorm.with(opdock::kWideRows);
inline constexpr auto kMisalignedNorm = kNorm.with(opdock::kMisalignedRows);

inline constexpr auto kAddNorm = OPDOCK_ROW_FAMILY("layernorm::add", 2, opdock::kHeavyRows);
inline constexpr auto kNarrowAddNorm = kAddNorm.with(opdock::kWidePairs);

inline constexpr auto kAddBiasNorm =
    OPDOCK_ROW_FAMILY("layernorm::add_bias", 2, opdock::kHeavyRows);
inline constexpr auto kNarrowAddBiasNorm = kAddBiasNorm.with(opdock::kWidePairs);

// Launches the norm's kernel on a GPU.
inline void launch_norm(const Call& call, const NormTask& of, Params* params) {
  const opdock::RowFit fit = fit_of(of, *params);
  const auto launch = [&](const auto& kernels) {
    opdock::launch_rows(call, kernels, of.x.dtype(), fit, params);
  };
  const bool is_narrow = of.x.dtype().bytes() == 2;
  if (of.input_bias) return is_narrow ? launch(kNarrowAddBiasNorm) : launch(kAddBiasNorm);
  if (of.residual) return is_narrow ? launch(kNarrowAddNorm) : launch(kAddNorm);
  if (!is_narrow) return of.centred ? launch(kNorm) : launch(kRmsNorm);
  if (fit != opdock::RowFit::kPlain) return launch(kMisalignedNorm);
  of.centred ? launch(kNarrowNorm) : launch(kNarrowRmsNorm);
}

}  // namespace layernorm
