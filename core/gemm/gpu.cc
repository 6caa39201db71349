// SPDX-License-Identifier: Apache-2.0
#include "gemm/gpu.h"

#include <atomic>
#include <string>

#include "gemm/cublaslt.h"
#include "gemm/cublaslt_library.h"
#include "gemm/fallback_warning.h"
#include "gemm/rocblas.h"
#include "gemm/split.h"

namespace opdock::gemm {
namespace {

// Whether the warning of each code has been logged.
std::atomic<bool> warned_missing{false}, warned_unfit{false}, warned_declined{false};

std::atomic<bool>* warned_flag(Code code) {
  return code == Code::kGemmLibraryMissing ? &warned_missing
         : code == Code::kGemmLibraryUnfit ? &warned_unfit
                                           : &warned_declined;
}

constexpr LibraryFeatures kCublaslt = {true, true}, kRocblas = {false, false};

bool is_amd(const opdock_call* call) {
  return call->device.type == OPDOCK_ROCM;
}
bool may_have_library(const opdock_call* call) {
  if (prefers_plain()) return false;
  return is_amd(call) ? !is_rocblas_missing() : !cublaslt::is_known_missing();
}
void split_for(const opdock_call* call, const Product& p, Split* split) {
  split_product(p, is_amd(call) ? kRocblas : kCublaslt, split);
}

// Returns which of Opdock's own kernels computes the whole product.
OwnKernel plain_kernel(const Product& p) {
  return is_integer(p) ? kMultiplyIntegers : kMultiplyFloats;
}

}  // namespace

uint64_t workspace_on_gpu(const opdock_call* call, const Product& p, uint32_t flags) {
  if (!may_have_library(call)) return 0;
  Split split;
  split_for(call, p, &split);
  if (!split.by_library) return 0;
  return bytes_of_sums(split) +
         (is_amd(call) ? kRocblasWorkspace : cublaslt_workspace(call, split.library, flags));
}

opdock_status prepare_on_gpu(GpuCall* gpu, const Product& p) {
  opdock_kernel* ignored = nullptr;
  Product any = p;
  any.m = any.n = any.k = any.batch = 1;
  Reason why{};
  if (may_have_library(gpu->call())) {
    Split split;
    split_for(gpu->call(), any, &split);
    const bool ready = split.by_library && (is_amd(gpu->call()) ? prepare_rocblas(gpu, &why)
                                                                : prepare_cublaslt(gpu, &why));
    if (ready) return split.finishes ? gpu->kernel(kFinishSums, &ignored) : OPDOCK_OK;
    if (split.by_library) warn_once(gpu->call(), warned_flag(why.code), why);
  }
  return gpu->kernel(plain_kernel(any), &ignored);
}

opdock_status run_on_gpu(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                         uint64_t workspace_bytes) {
  const opdock_call* const call = gpu->call();
  Split split;
  if (may_have_library(call)) split_for(call, p, &split);
  if (!split.by_library) return multiply_plainly(gpu, p);
  const uint64_t sums = bytes_of_sums(split);
  const uint64_t least = sums + (is_amd(call) ? kRocblasWorkspace : 0);
  if (workspace_bytes < least) {
    const std::string text = "gemm: workspace: found " + std::to_string(workspace_bytes) +
                             " bytes, wanted at least " + std::to_string(least) +
                             "; hand in what plan asked for";
    return call->host->set_error(call, OPDOCK_INVALID_ARGUMENT, text.c_str());
  }
  char* const own = static_cast<char*>(workspace);
  if (split.in_workspace) split.library.d.data = split.sums.data = own;
  Reason why{};
  opdock_status status = OPDOCK_OK;
  const auto run_library = is_amd(call) ? run_rocblas : run_cublaslt;
  switch (
      run_library(gpu, split.library, flags, own + sums, workspace_bytes - sums, &why, &status)) {
    case Done::kDone:
      return split.finishes ? finish_sums(gpu, split.rest, split.sums) : OPDOCK_OK;
    case Done::kFailed:
      return status;
    case Done::kDeclined:
      break;
  }
  warn_once(call, warned_flag(why.code), why);
  return multiply_plainly(gpu, p);
}

}  // namespace opdock::gemm
