// Primary contexts and the current context.
// SPDX-License-Identifier: Apache-2.0
#include "capture.h"
#include "cuda.h"

using namespace softgpu;

namespace softgpu {

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

CUcontext current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

CUresult enter_with_context(const char* function, CUcontext* context) {
  if (const CUresult error = enter(function)) return error;
  *context = current_context();
  return *context ? (*context)->failed.load() : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult enter_with_stream(const char* function, CUstream handle, std::shared_ptr<Stream>* stream,
                           CUresult wrong) {
  if (const CUresult error = enter(function)) return error;
  const Lock lock = lock_state();
  *stream = find_stream(handle, current_context());
  return *stream ? (*stream)->context->failed.load() : wrong;
}

}  // namespace softgpu

namespace {

DeviceContext* primary_of(CUdevice device) {
  const bool valid = device >= 0 && static_cast<size_t>(device) < state().cuda.size();
  return valid ? &state().cuda[static_cast<size_t>(device)] : nullptr;
}

}  // namespace

SOFTGPU_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult error = enter("cuDevicePrimaryCtxRetain")) return error;
  const Lock lock = lock_state();
  DeviceContext* const primary = primary_of(device);
  if (!primary) return CUDA_ERROR_INVALID_DEVICE;
  if (primary->references++ == 0) record("context", {{"device", device}});
  *context = primary;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (const CUresult error = enter("cuDevicePrimaryCtxRelease_v2")) return error;
  const Lock lock = lock_state();
  DeviceContext* const primary = primary_of(device);
  if (!primary) return CUDA_ERROR_INVALID_DEVICE;
  if (primary->references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --primary->references;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const CUresult error = enter("cuDevicePrimaryCtxGetState")) return error;
  const Lock lock = lock_state();
  DeviceContext* const primary = primary_of(device);
  if (!primary) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = primary->references > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult error = enter("cuCtxGetCurrent")) return error;
  *context = current_context();
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxSetCurrent(CUcontext context) {
  if (const CUresult error = enter("cuCtxSetCurrent")) return error;
  if (!context_stack().empty()) context_stack().pop_back();
  if (context) context_stack().push_back(context);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (const CUresult error = enter("cuCtxPushCurrent_v2")) return error;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (const CUresult error = enter("cuCtxPopCurrent_v2")) return error;
  if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = context_stack().back();
  context_stack().pop_back();
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxGetDevice(CUdevice* device) {
  if (const CUresult error = enter("cuCtxGetDevice")) return error;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxSynchronize() {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuCtxSynchronize", &context)) return error;
  Lock lock = lock_state();
  if (config().executes()) {
    if (const CUresult error = forbid_in_capture()) return error;
  }
  wait_for_context(&lock, context);
  return context->failed;
}

SOFTGPU_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuCtxGetStreamPriorityRange", &context)) {
    return error;
  }
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}
