// SPDX-License-Identifier: Apache-2.0
#include "gemm/rocblas.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/loaded_objects.h"
#include "driver/api_library.h"
#include "gemm/fallback_warning.h"
#include "gemm/thread_states.h"

namespace opdock::gemm {
namespace {

// Names and values of the rocBLAS reference.
using RocResult = int;  // rocblas_status
constexpr RocResult kRocSuccess = 0, kRocNotImplemented = 2, kRocInvalidSize = 4, kRocDegraded = 7,
                    kRocInvalidValue = 11;
constexpr int kRocOpNone = 111, kRocOpTranspose = 112;
constexpr int kRocF16 = 150, kRocF32 = 151, kRocI8 = 160, kRocI32 = 162, kRocBf16 = 168;
constexpr int kRocAtomicsNotAllowed = 0, kRocAtomicsAllowed = 1;
constexpr int kRocAlgoStandard = 0;

struct RocApi {
  RocResult (*create_handle)(void** handle);
  RocResult (*set_stream)(void* handle, void* stream);
  RocResult (*set_workspace)(void* handle, void* memory, size_t bytes);
  RocResult (*set_atomics_mode)(void* handle, int mode);
  const char* (*status_to_string)(RocResult);
  RocResult (*gemm)(void* handle, int transpose_a, int transpose_b, int32_t m, int32_t n, int32_t k,
                    const void* alpha, const void* a, int a_type, int32_t lda, int64_t stride_a,
                    const void* b, int b_type, int32_t ldb, int64_t stride_b, const void* beta,
                    const void* c, int c_type, int32_t ldc, int64_t stride_c, void* d, int d_type,
                    int32_t ldd, int64_t stride_d, int32_t batch, int compute_type, int algo,
                    int32_t solution, uint32_t flags);
};

struct RocState {
  const RocApi& api;
  void* handle;
};

ApiLibrary<RocApi>& roc_library = *new ApiLibrary<RocApi>;
std::atomic<bool> roc_missing{false};
constexpr const char* kRocNames[] = {"librocblas.so.5", "librocblas.so.4", "librocblas.so.0"};

void fill_rocblas(ApiSymbols* symbols, RocApi* api) {
  symbols->need("rocblas_create_handle", &api->create_handle);
  symbols->need("rocblas_set_stream", &api->set_stream);
  symbols->need("rocblas_set_workspace", &api->set_workspace);
  symbols->need("rocblas_set_atomics_mode", &api->set_atomics_mode);
  symbols->need("rocblas_status_to_string", &api->status_to_string);
  symbols->need("rocblas_gemm_strided_batched_ex", &api->gemm);
}

Status open_rocblas(void** out) {
  const auto try_one = [&](const std::string& path, int more) {
    *out = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | more);
    return *out != nullptr;
  };
  if (const std::string& named = wanted_library(); !named.empty()) {
    if (try_one(named, 0)) return {};
    const char* const text = dlerror();
    return {OPDOCK_INCOMPATIBLE, "OPDOCK_GEMM: " + std::string(text != nullptr ? text : named)};
  }
  if (const std::string path = loaded_library("librocblas.so");
      !path.empty() && try_one(path, RTLD_NOLOAD))
    return {};
  const char* const rocm = secure_getenv("ROCM_PATH");
  std::string why;
  for (const std::string& folder :
       {std::string(rocm == nullptr ? "" : rocm), std::string("/opt/rocm")}) {
    for (const char* name : kRocNames) {
      const std::string path = folder + "/lib/" + name;
      if (folder.empty() || access(path.c_str(), F_OK) != 0) continue;
      if (try_one(path, 0)) return {};
      if (const char* const text = dlerror()) why = text;
    }
  }
  for (const char* name : kRocNames)
    if (try_one(name, 0)) return {};
  if (!why.empty()) return {OPDOCK_INCOMPATIBLE, why};
  return {OPDOCK_NOT_FOUND,
          "no librocblas.so.5, .4 or .0 in this process, ROCM_PATH/lib, /opt/rocm/lib or where the "
          "loader looks"};
}

std::string name_of(const RocApi& api, RocResult result) {
  const char* const name = api.status_to_string(result);
  return (name == nullptr ? "an unknown status" : name) + (" (" + std::to_string(result) + ")");
}

RocState* roc_state(GpuCall* gpu, Reason* why) {
  const int32_t device = gpu->call()->device.index;
  RocState*& slot = ThreadStates<RocState>::of(device);
  if (slot != nullptr) return slot;
  const RocApi* api = nullptr;
  const Status opened = roc_library.get(
      open_rocblas, fill_rocblas,
      [](const std::string& missing) { return "a librocblas without " + missing; }, &api);
  if (!opened.ok()) {
    roc_missing.store(true, std::memory_order_relaxed);
    *why = make_reason(
        opened.status == OPDOCK_NOT_FOUND ? Code::kGemmLibraryMissing : Code::kGemmLibraryUnfit,
        opened.text, "rocBLAS of ROCm 5 to 7");
    return nullptr;
  }
  if (slot = ThreadStates<RocState>::take_left(device); slot != nullptr) return slot;
  void* handle = nullptr;
  if (const RocResult made = api->create_handle(&handle); made != kRocSuccess) {
    roc_missing.store(true, std::memory_order_relaxed);
    *why = make_reason(Code::kGemmLibraryUnfit, "rocblas_create_handle: " + name_of(*api, made),
                       "a rocBLAS that works with this GPU");
    return nullptr;
  }
  return slot = new RocState{*api, handle};
}

int roc_type(int element) {
  switch (element) {
    case kFloat16:
      return kRocF16;
    case kBfloat16:
      return kRocBf16;
    case kInt8:
      return kRocI8;
    case kInt32:
      return kRocI32;
    default:
      return kRocF32;
  }
}

}  // namespace

bool prepare_rocblas(GpuCall* gpu, Reason* why) {
  return roc_state(gpu, why) != nullptr;
}

bool is_rocblas_missing() {
  return roc_missing.load(std::memory_order_relaxed);
}

Done run_rocblas(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                 uint64_t workspace_bytes, Reason* why, opdock_status* status) {
  const Operand& c = has_c(p) ? p.finish.c : p.d;
  RocState* const state = roc_state(gpu, why);
  if (state == nullptr) return Done::kDeclined;
  const RocApi& api = state->api;
  RocResult done = kRocInvalidSize;  // rocBLAS's strides have 32 bits
  if (std::max({stride_of(p.a), stride_of(p.b), stride_of(c), stride_of(p.d)}) <= INT32_MAX) {
    done = api.set_stream(state->handle, gpu->call()->stream);
    if (done == kRocSuccess) done = api.set_workspace(state->handle, workspace, workspace_bytes);
    if (done == kRocSuccess) {
      const bool fixed = (flags & OPDOCK_GEMM_DETERMINISTIC) != 0;
      done =
          api.set_atomics_mode(state->handle, fixed ? kRocAtomicsNotAllowed : kRocAtomicsAllowed);
    }
  }
  if (done == kRocSuccess) {
    const bool integers = is_integer(p);
    const int32_t one = 1, zero = 0;
    const auto stride = [](const Operand& x) { return static_cast<int32_t>(stride_of(x)); };
    // rocBLAS is column-major, as BLAS is: D' = op(B)' op(A)'.
    done = api.gemm(
        state->handle, p.b.transposed ? kRocOpTranspose : kRocOpNone,
        p.a.transposed ? kRocOpTranspose : kRocOpNone, static_cast<int32_t>(p.n),
        static_cast<int32_t>(p.m), static_cast<int32_t>(p.k),
        integers ? static_cast<const void*>(&one) : &p.finish.alpha, p.b.data,
        roc_type(p.b.element), stride(p.b), p.b.batch_stride, p.a.data, roc_type(p.a.element),
        stride(p.a), p.a.batch_stride, integers ? static_cast<const void*>(&zero) : &p.finish.beta,
        c.data, roc_type(c.element), stride(c), c.batch_stride, const_cast<void*>(p.d.data),
        roc_type(p.d.element), stride(p.d), p.d.batch_stride, static_cast<int32_t>(p.batch),
        integers ? kRocI32 : kRocF32, kRocAlgoStandard, 0, 0);
  }
  if (done == kRocSuccess || done == kRocDegraded) return Done::kDone;
  const std::string found = "rocblas_gemm_strided_batched_ex: " + name_of(api, done);
  if (done == kRocNotImplemented || done == kRocInvalidSize || done == kRocInvalidValue) {
    *why = make_reason(Code::kGemmDeclined, found, "an algorithm for the product");
    return Done::kDeclined;
  }
  const opdock_call* const call = gpu->call();
  *status = call->host->set_error(
      call, OPDOCK_DEVICE_ERROR,
      (found + ", wanted the product enqueued; see the rocBLAS reference for this status").c_str());
  return Done::kFailed;
}

}  // namespace opdock::gemm
