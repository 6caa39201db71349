// Implements einsum_sec_sm_ecm: a product of two matrices, the first of which is stored transposed.
// SPDX-License-Identifier: Apache-2.0
#include "product.h"

namespace linear {
namespace {

// Describes the product as a batch over e of q[:, e, :]' w, or as one product over all e if they
// are contiguous.
opdock_gemm einsum_gemm(Tensor q, Tensor w) {
  const int64_t s = q.size(0), e = q.size(1), c = q.size(2), m = w.size(1);
  const auto stride = [](Tensor x, int32_t at, int64_t least) {
    return x.size(at) > 1 && !x.is_empty() ? x.stride(at) : least;
  };
  const int64_t of_e = stride(q, 1, c);
  const bool joined = of_e == c && c * e <= INT32_MAX;
  opdock_gemm gemm = {};
  gemm.struct_size = sizeof gemm;
  gemm.flags = OPDOCK_GEMM_DETERMINISTIC;
  gemm.alpha = 1.0f;
  gemm.m = joined ? e * c : c;
  gemm.batch = joined ? 1 : e;
  gemm.n = m;
  gemm.k = s;
  const auto data = [](Tensor x) { return x.has_data() && !x.is_empty() ? x.raw() : nullptr; };
  gemm.a = {data(q),           q.dtype(), OPDOCK_GEMM_TRANSPOSED, stride(q, 0, gemm.m),
            joined ? 0 : of_e, nullptr};
  gemm.b = {data(w), w.dtype(), 0, stride(w, 0, m), 0, nullptr};
  gemm.d = {nullptr, q.dtype(), 0, m, joined ? 0 : c * m, nullptr};
  return gemm;
}

void plan_einsum(Plan& plan, Tensor q, Tensor w) {
  check_input(q, "q");
  check(q, "q").ndim(3);
  check(w, "w").same_dtype_as(q, "q");
  check_matrix(w, "w");
  check(w, "w").size(0, q.size(0));
  const opdock_gemm gemm = einsum_gemm(q, w);
  if (gemm.a.stride < gemm.m && !q.is_empty())
    throw opdock::Error(
        OPDOCK_UNSUPPORTED,
        opdock::detail::concat("argument 'q': found strides ",
                               opdock::detail::list_text(q.strides(), 3), " for shape ",
                               q.shape_text(),
                               ", wanted rows that share no element; make it contiguous first"));
  plan.workspace(gemm_workspace(plan, gemm));
  plan.output(opdock::Layout(q.dtype(), {q.size(1), q.size(2), w.size(1)}));
}

void run_einsum(Call& call, Results results, Tensor q, Tensor w) {
  const Tensor out = results[0];
  if (out.is_empty()) return;
  check(out, "output 0").contiguous();
  opdock_gemm gemm = einsum_gemm(q, w);
  gemm.d.data = out.raw();
  run_gemm(call, gemm, call.workspace(), call.workspace_bytes());
}

}  // namespace
}  // namespace linear

OPDOCK_OP(einsum_sec_sm_ecm, linear::plan_einsum, linear::prepare_products, linear::run_einsum)
