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

// Names and values are those of the rocBLAS reference, so that it can be searched for them.
enum rocblas_status : int {
  rocblas_status_success = 0,
  rocblas_status_not_implemented = 2,
  rocblas_status_invalid_size = 4,
  rocblas_status_perf_degraded = 7,
  rocblas_status_invalid_value = 11,
};
enum rocblas_operation : int { rocblas_operation_none = 111, rocblas_operation_transpose = 112 };
enum rocblas_datatype : int {
  rocblas_datatype_f16_r = 150,
  rocblas_datatype_f32_r = 151,
  rocblas_datatype_i8_r = 160,
  rocblas_datatype_i32_r = 162,
  rocblas_datatype_bf16_r = 168,
};
enum rocblas_atomics_mode : int { rocblas_atomics_not_allowed = 0, rocblas_atomics_allowed = 1 };
enum rocblas_gemm_algo : int { rocblas_gemm_algo_standard = 0 };
using rocblas_handle = void*;

struct RocApi {
  rocblas_status (*rocblas_create_handle)(rocblas_handle*);
  rocblas_status (*rocblas_set_stream)(rocblas_handle, void* stream);
  rocblas_status (*rocblas_set_workspace)(rocblas_handle, void* memory, size_t bytes);
  rocblas_status (*rocblas_set_atomics_mode)(rocblas_handle, rocblas_atomics_mode);
  const char* (*rocblas_status_to_string)(rocblas_status);
  rocblas_status (*rocblas_gemm_strided_batched_ex)(
      rocblas_handle, rocblas_operation transpose_a, rocblas_operation transpose_b, int32_t m,
      int32_t n, int32_t k, const void* alpha, const void* a, rocblas_datatype a_type, int32_t lda,
      int64_t stride_a, const void* b, rocblas_datatype b_type, int32_t ldb, int64_t stride_b,
      const void* beta, const void* c, rocblas_datatype c_type, int32_t ldc, int64_t stride_c,
      void* d, rocblas_datatype d_type, int32_t ldd, int64_t stride_d, int32_t batch,
      rocblas_datatype compute_type, rocblas_gemm_algo, int32_t solution, uint32_t flags);
};

struct RocState {
  const RocApi& api;
  rocblas_handle handle;
};

ApiLibrary<RocApi>& roc_library = *new ApiLibrary<RocApi>;
std::atomic<bool> roc_missing{false};
constexpr const char* kRocNames[] = {"librocblas.so.5", "librocblas.so.4", "librocblas.so.0"};

void fill_rocblas(ApiSymbols* symbols, RocApi* api) {
  symbols->need("rocblas_create_handle", &api->rocblas_create_handle);
  symbols->need("rocblas_set_stream", &api->rocblas_set_stream);
  symbols->need("rocblas_set_workspace", &api->rocblas_set_workspace);
  symbols->need("rocblas_set_atomics_mode", &api->rocblas_set_atomics_mode);
  symbols->need("rocblas_status_to_string", &api->rocblas_status_to_string);
  symbols->need("rocblas_gemm_strided_batched_ex", &api->rocblas_gemm_strided_batched_ex);
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

std::string name_of(const RocApi& api, rocblas_status result) {
  const char* const name = api.rocblas_status_to_string(result);
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
  rocblas_handle handle = nullptr;
  if (const rocblas_status made = api->rocblas_create_handle(&handle);
      made != rocblas_status_success) {
    roc_missing.store(true, std::memory_order_relaxed);
    *why = make_reason(Code::kGemmLibraryUnfit, "rocblas_create_handle: " + name_of(*api, made),
                       "a rocBLAS that works with this GPU");
    return nullptr;
  }
  return slot = new RocState{*api, handle};
}

rocblas_datatype roc_type(int element) {
  switch (element) {
    case kFloat16:
      return rocblas_datatype_f16_r;
    case kBfloat16:
      return rocblas_datatype_bf16_r;
    case kInt8:
      return rocblas_datatype_i8_r;
    case kInt32:
      return rocblas_datatype_i32_r;
    default:
      return rocblas_datatype_f32_r;
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
  rocblas_status done = rocblas_status_invalid_size;  // rocBLAS's strides have 32 bits
  if (std::max({stride_of(p.a), stride_of(p.b), stride_of(c), stride_of(p.d)}) <= INT32_MAX) {
    done = api.rocblas_set_stream(state->handle, gpu->call()->stream);
    if (done == rocblas_status_success)
      done = api.rocblas_set_workspace(state->handle, workspace, workspace_bytes);
    if (done == rocblas_status_success) {
      const bool fixed = (flags & OPDOCK_GEMM_DETERMINISTIC) != 0;
      done = api.rocblas_set_atomics_mode(
          state->handle, fixed ? rocblas_atomics_not_allowed : rocblas_atomics_allowed);
    }
  }
  if (done == rocblas_status_success) {
    const bool integers = is_integer(p);
    const int32_t one = 1, zero = 0;
    const auto stride = [](const Operand& x) { return static_cast<int32_t>(stride_of(x)); };
    // rocBLAS is column-major, as BLAS is: D' = op(B)' op(A)'.
    done = api.rocblas_gemm_strided_batched_ex(
        state->handle, p.b.transposed ? rocblas_operation_transpose : rocblas_operation_none,
        p.a.transposed ? rocblas_operation_transpose : rocblas_operation_none,
        static_cast<int32_t>(p.n), static_cast<int32_t>(p.m), static_cast<int32_t>(p.k),
        integers ? static_cast<const void*>(&one) : &p.finish.alpha, p.b.data,
        roc_type(p.b.element), stride(p.b), p.b.batch_stride, p.a.data, roc_type(p.a.element),
        stride(p.a), p.a.batch_stride, integers ? static_cast<const void*>(&zero) : &p.finish.beta,
        c.data, roc_type(c.element), stride(c), c.batch_stride, const_cast<void*>(p.d.data),
        roc_type(p.d.element), stride(p.d), p.d.batch_stride, static_cast<int32_t>(p.batch),
        integers ? rocblas_datatype_i32_r : rocblas_datatype_f32_r, rocblas_gemm_algo_standard, 0,
        0);
  }
  if (done == rocblas_status_success || done == rocblas_status_perf_degraded) return Done::kDone;
  const std::string found = "rocblas_gemm_strided_batched_ex: " + name_of(api, done);
  if (done == rocblas_status_not_implemented || done == rocblas_status_invalid_size ||
      done == rocblas_status_invalid_value) {
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
