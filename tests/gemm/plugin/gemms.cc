// An op over opdock.gemm/1 that exposes all of its parameters.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/gemm.hpp>

namespace {

using opdock::Call;
using opdock::Gemm;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using Maybe = std::optional<Tensor>;

Gemm describe(Tensor a, Tensor b, Tensor d, const Maybe& c, const Maybe& bias, const Maybe& a_scale,
              const Maybe& b_scale, const Maybe& d_scale, bool transpose_a, bool transpose_b,
              double alpha, double beta, bool in_place, int64_t activation, bool residual,
              int64_t flags) {
  Gemm gemm(a, b, (transpose_a ? Gemm::kTransposeA : 0u) | (transpose_b ? Gemm::kTransposeB : 0u));
  gemm.alpha(static_cast<float>(alpha)).activation(static_cast<uint32_t>(activation)).d(d);
  if (c || in_place) gemm.c(c ? *c : d, static_cast<float>(beta), residual);
  if (bias) gemm.bias(*bias);
  if (a_scale) gemm.a_scale(*a_scale);
  if (b_scale) gemm.b_scale(*b_scale);
  if (d_scale) gemm.d_scale(*d_scale);
  return gemm.flags(static_cast<uint32_t>(flags));
}

void plan(Plan& plan, Tensor a, Tensor b, Tensor d, Maybe c, Maybe bias, Maybe a_scale,
          Maybe b_scale, Maybe d_scale, bool transpose_a, bool transpose_b, double alpha,
          double beta, bool in_place, int64_t activation, bool residual, int64_t flags, int64_t) {
  describe(a, b, d, c, bias, a_scale, b_scale, d_scale, transpose_a, transpose_b, alpha, beta,
           in_place, activation, residual, flags)
      .plan(plan);
}

void prepare(Call& call) {
  Gemm::prepare(call, opdock::dtype_of<float>(), opdock::dtype_of<float>(),
                opdock::dtype_of<float>(), OPDOCK_GEMM_SILU);
}

void run(Call& call, Results, Tensor a, Tensor b, Tensor d, Maybe c, Maybe bias, Maybe a_scale,
         Maybe b_scale, Maybe d_scale, bool transpose_a, bool transpose_b, double alpha,
         double beta, bool in_place, int64_t activation, bool residual, int64_t flags,
         int64_t workspace) {
  const uint64_t bytes = call.workspace_bytes();
  describe(a, b, d, c, bias, a_scale, b_scale, d_scale, transpose_a, transpose_b, alpha, beta,
           in_place, activation, residual, flags)
      .run(call, call.workspace(), std::min(bytes, static_cast<uint64_t>(workspace)));
}

}  // namespace

OPDOCK_OP(test_gemm, plan, prepare, run)
