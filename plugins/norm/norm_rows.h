// How rows are normalised by the kernels of this plugin, which another one may have too: it links
// to this file, norm_checks.h, norm_cpu.cc, norm_cpu.h, norm_simd.h and device/ norm.cuh,
// moments.cuh, norm_params.cuh, and lists the kernels in namespace layernorm that are named here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/norm_params.cuh"
#include "norm_checks.h"
#include "norm_cpu.h"

namespace layernorm {

// norm(x + residual) * weight + bias: an rms norm if not centred. All have been checked; sum is
// there if residual is.
struct NormTask {
  Tensor x;
  OptionalTensor residual, weight, bias;
  double eps;
  bool centred;
  Tensor out;
  OptionalTensor sum;
};

inline void* raw(const OptionalTensor& tensor) {
  return tensor ? tensor->raw() : nullptr;
}

// x has elements.
inline Params make_params(const NormTask& of) {
  Params params = {};
  params.x = of.x.raw();
  params.residual = raw(of.residual);
  params.weight = raw(of.weight);
  params.bias = raw(of.bias);
  params.out = of.out.raw();
  params.sum = raw(of.sum);
  params.length = of.x.size(-1);
  params.eps = static_cast<float>(of.eps);
  params.share = 1.0f / static_cast<float>(params.length);
  params.centred = of.centred;
  params.rows = opdock::make_rows<4>({of.x, of.residual, of.out, of.sum});
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
  return opdock::fit_of(params.rows, params.length, of.x.dtype().bytes(),
                        {params.x, params.residual, params.out, params.sum},
                        {params.weight, params.bias});
}

inline constexpr opdock::RowKernels kNorm = {
    1, opdock::kHeavyRows,
    OPDOCK_KERNEL_FAMILY("layernorm::narrow_rows", opdock::RowTypes, opdock::KernelNumbers<2>,
                         opdock::RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::block_rows", opdock::RowTypes, opdock::KernelNumbers<2, 4, 8>,
                         opdock::RowEdges),
    OPDOCK_KERNEL_FAMILY("layernorm::long_rows", opdock::RowTypes)};
// Of 16 bits.
inline constexpr opdock::RowKernels kNarrowNorm = {1, opdock::kWideRows, kNorm.narrow_rows,
                                                   kNorm.block_rows, kNorm.long_rows};
inline constexpr opdock::RowKernels kOddNorm = {1, opdock::kOddRows, kNorm.narrow_rows,
                                                kNorm.block_rows, kNorm.long_rows};

// On a GPU, without a residual.
inline void launch_norm(const Call& call, const NormTask& of, Params* params) {
  const opdock::RowFit fit = fit_of(of, *params);
  const auto launch = [&](const auto& kernels) {
    opdock::launch_rows(call, kernels, of.x.dtype(), fit, params);
  };
  if (of.x.dtype().bytes() != 2) return launch(kNorm);
  fit == opdock::RowFit::kPlain ? launch(kNarrowNorm) : launch(kOddNorm);
}

}  // namespace layernorm
