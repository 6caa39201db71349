// SPDX-License-Identifier: Apache-2.0
#include "gemm/cpu.h"

#include <algorithm>
#include <atomic>

#include "gemm/blas_library.h"
#include "gemm/fallback_warning.h"
#include "gemm/plain_cpu.h"
#include "opdock/parallel.h"

namespace opdock::gemm {
namespace {

// Waking a thread pays off for about ten microseconds of work or more.
constexpr uint64_t kGrainElements = 1 << 14;

// Runs body(p, begin, end) on the call's threads.
void share(const opdock_call* call, const Product& p, uint64_t count, uint64_t grain,
           void (*body)(const Product& p, uint64_t begin, uint64_t end)) {
  struct Context {
    const Product& p;
    void (*body)(const Product& p, uint64_t begin, uint64_t end);
  } context{p, body};
  const auto* const parallel =
      static_cast<const opdock_parallel*>(call->host->get_extension(OPDOCK_PARALLEL_2));
  parallel->parallel_for(
      call, count, grain,
      [](void* data, uint64_t begin, uint64_t end) {
        const auto& shared = *static_cast<const Context*>(data);
        shared.body(shared.p, begin, end);
      },
      &context);
}

void share_rows(const opdock_call* call, const Product& p,
                void (*body)(const Product& p, uint64_t begin, uint64_t end)) {
  const uint64_t rows = static_cast<uint64_t>(p.m) * static_cast<uint64_t>(p.batch);
  share(call, p, rows, std::max<uint64_t>(1, kGrainElements / static_cast<uint64_t>(p.n)), body);
}

bool suits_blas(const Product& p) {
  if (p.a.element != kFloat32 || p.a.scale != nullptr || p.b.scale != nullptr) return false;
  // The residual is added after the product, which would overwrite C if C is D itself.
  return !(p.finish.residual && is_in_place(p));
}

// Returns whether the library's integers can hold the strides.
bool fits(const Blas& blas, const Product& p) {
  return blas.has_long || std::max({stride_of(p.a), stride_of(p.b), stride_of(p.d)}) <= INT32_MAX;
}

void run_blas(const opdock_call* call, const Blas& blas, const Product& p) {
  const bool adds_c = has_c(p) && !p.finish.residual;
  if (adds_c && !is_in_place(p)) share_rows(call, p, copy_rows);
  // A row-major matrix is the transpose of a column-major one: D' = op(B)' op(A)'.
  const auto transpose = [](const Operand& x) { return x.transposed ? "T" : "N"; };
  const int64_t m = p.m, n = p.n, k = p.k;
  const int64_t lda = stride_of(p.a), ldb = stride_of(p.b), ldd = stride_of(p.d);
  const float beta = adds_c ? p.finish.beta : 0.0f;
  for (int64_t i = 0; i < p.batch; ++i) {
    blas.sgemm(transpose(p.b), transpose(p.a), &n, &m, &k, &p.finish.alpha,
               static_cast<const float*>(p.b.data) + i * p.b.batch_stride, &ldb,
               static_cast<const float*>(p.a.data) + i * p.a.batch_stride, &lda, &beta,
               static_cast<float*>(const_cast<void*>(p.d.data)) + i * p.d.batch_stride, &ldd, 1, 1);
  }
  if (!is_plain(p) || p.d.scale != nullptr) share_rows(call, p, finish_rows);
}

}  // namespace

void run_on_cpu(const opdock_call* call, const Product& p) {
  if (suits_blas(p) && !prefers_plain()) {
    Reason why{};
    const Blas* const blas = find_blas(&why);
    if (blas != nullptr && fits(*blas, p)) return run_blas(call, *blas, p);
    static std::atomic<bool> warned{false};
    if (blas == nullptr) warn_once(call, &warned, why);
  }
  share(call, p, count_tiles(p), 1, multiply_tiles);
}

}  // namespace opdock::gemm
