// CUDA's streams.
// SPDX-License-Identifier: Apache-2.0
#include "capture.h"
#include "cuda.h"

using namespace softgpu;

namespace {

constexpr unsigned kNonBlocking = 1;

}  // namespace

SOFTGPU_API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuStreamCreateWithPriority", &context)) {
    return error;
  }
  if (flags > kNonBlocking) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock = lock_state();
  *stream = open_stream(context, (flags & kNonBlocking) == 0).get();
  (*stream)->flags = flags;
  (*stream)->priority = priority;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuStreamCreate", &context)) return error;
  if (flags > kNonBlocking) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock = lock_state();
  *stream = open_stream(context, (flags & kNonBlocking) == 0).get();
  (*stream)->flags = flags;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamDestroy_v2(CUstream stream) {
  if (const CUresult error = enter("cuStreamDestroy_v2")) return error;
  const Lock lock = lock_state();
  const auto found = state().streams.find(stream);
  if (found == state().streams.end() || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
  close_stream(stream);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  if (const CUresult error = enter("cuStreamGetCtx")) return error;
  const Lock lock = lock_state();
  const std::shared_ptr<Stream> stream = find_stream(handle, current_context());
  if (!stream) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stream->context;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuStreamGetFlags", handle, &stream)) return error;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuStreamGetPriority", handle, &stream)) {
    return error;
  }
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamSynchronize(CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuStreamSynchronize", handle, &stream)) {
    return error;
  }
  Lock lock = lock_state();
  record("synchronize", {{"stream", handle_text(handle)}});
  if (const CUresult error = forbid_in_capture_of(*stream)) return error;
  wait_for_stream(&lock, stream);
  return stream->context->failed;
}

SOFTGPU_API CUresult cuStreamQuery(CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuStreamQuery", handle, &stream)) return error;
  const Lock lock = lock_state();
  if (stream->capture) return forbid_in_capture_of(*stream);
  if (!is_idle(stream.get())) return CUDA_ERROR_NOT_READY;
  return stream->context->failed;
}

SOFTGPU_API CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  constexpr int kNone = 0, kActive = 1, kInvalidated = 2;
  if (const CUresult error = enter("cuStreamIsCapturing")) return error;
  const Lock lock = lock_state();
  const std::shared_ptr<Stream> stream = find_stream(handle, current_context());
  const Capture* const capture = stream ? stream->capture.get() : nullptr;
  *status = !capture ? kNone : capture->invalid ? kInvalidated : kActive;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuLaunchHostFunc(CUstream handle, void (*function)(void*), void* data) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuLaunchHostFunc", handle, &stream)) return error;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock = lock_state();
  return submit(stream.get(), {"a host function", host_action(function, data)});
}
