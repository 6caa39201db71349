// Primary contexts, the current one, and streams.
// SPDX-License-Identifier: Apache-2.0
#include "state.h"

using namespace softgpu;

namespace {

Context* primary_of(CUdevice device) {
  const bool valid = device >= 0 && static_cast<size_t>(device) < state().primary.size();
  return valid ? &state().primary[static_cast<size_t>(device)] : nullptr;
}

}  // namespace

SOFTGPU_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult error = enter("cuDevicePrimaryCtxRetain")) return error;
  const std::lock_guard lock(state().mutex);
  Context* const primary = primary_of(device);
  if (!primary) return CUDA_ERROR_INVALID_DEVICE;
  if (primary->references++ == 0) record("context", {{"device", device}});
  *context = primary;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (const CUresult error = enter("cuDevicePrimaryCtxRelease_v2")) return error;
  const std::lock_guard lock(state().mutex);
  Context* const primary = primary_of(device);
  if (!primary) return CUDA_ERROR_INVALID_DEVICE;
  if (primary->references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --primary->references;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const CUresult error = enter("cuDevicePrimaryCtxGetState")) return error;
  const std::lock_guard lock(state().mutex);
  Context* const primary = primary_of(device);
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
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuCtxGetDevice", &context)) return error;
  *device = context->device;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxSynchronize() {
  CUcontext context = nullptr;
  return enter_with_context("cuCtxSynchronize", &context);
}

SOFTGPU_API CUresult cuStreamCreate(CUstream* stream, unsigned) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuStreamCreate", &context)) return error;
  const std::lock_guard lock(state().mutex);
  auto made = std::make_unique<Stream>(Stream{context, false});
  *stream = made.get();
  state().streams[*stream] = std::move(made);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamDestroy_v2(CUstream stream) {
  if (const CUresult error = enter("cuStreamDestroy_v2")) return error;
  const std::lock_guard lock(state().mutex);
  return state().streams.erase(stream) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  if (const CUresult error = enter("cuStreamGetCtx")) return error;
  const std::lock_guard lock(state().mutex);
  *context = context_of(stream);
  return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

SOFTGPU_API CUresult cuStreamSynchronize(CUstream stream) {
  if (const CUresult error = enter("cuStreamSynchronize")) return error;
  const std::lock_guard lock(state().mutex);
  if (!context_of(stream)) return CUDA_ERROR_INVALID_HANDLE;
  record("synchronize", {{"stream", handle_text(stream)}});
  return any_capturing() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamQuery(CUstream stream) {
  if (const CUresult error = enter("cuStreamQuery")) return error;
  const std::lock_guard lock(state().mutex);
  return context_of(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  if (const CUresult error = enter("cuStreamIsCapturing")) return error;
  const std::lock_guard lock(state().mutex);
  const auto found = state().streams.find(stream);
  *status = found != state().streams.end() && found->second->capturing ? 1 : 0;
  return CUDA_SUCCESS;
}

// Capturing makes no graph: it only makes the calls fail that a capture forbids.
SOFTGPU_API CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  if (const CUresult error = enter("cuStreamBeginCapture_v2")) return error;
  const std::lock_guard lock(state().mutex);
  const auto found = state().streams.find(stream);
  if (found == state().streams.end()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  found->second->capturing = true;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamEndCapture(CUstream stream, void** graph) {
  if (const CUresult error = enter("cuStreamEndCapture")) return error;
  const std::lock_guard lock(state().mutex);
  const auto found = state().streams.find(stream);
  if (found == state().streams.end() || !found->second->capturing) return CUDA_ERROR_INVALID_VALUE;
  found->second->capturing = false;
  *graph = nullptr;
  return CUDA_SUCCESS;
}
