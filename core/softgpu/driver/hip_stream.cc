// HIP's streams.
// SPDX-License-Identifier: Apache-2.0
#include "capture.h"
#include "hip.h"

using namespace softgpu;
using namespace softgpu::hip;

namespace {

constexpr unsigned kNonBlocking = 1;
using StreamPtr = std::shared_ptr<Stream>;

Result create(const char* function, Stream** stream, unsigned flags, int priority) {
  return on_locked_device(function, [&](DeviceContext* context, Lock*) {
    if (!stream || flags > kNonBlocking) return kInvalidValue;
    *stream = open_stream(context, (flags & kNonBlocking) == 0).get();
    (*stream)->flags = flags;
    (*stream)->priority = priority;
    return kSuccess;
  });
}

}  // namespace

SOFTGPU_API Result hipStreamCreate(Stream** stream) {
  return create("hipStreamCreate", stream, 0, 0);
}

SOFTGPU_API Result hipStreamCreateWithFlags(Stream** stream, unsigned flags) {
  return create("hipStreamCreateWithFlags", stream, flags, 0);
}

SOFTGPU_API Result hipStreamCreateWithPriority(Stream** stream, unsigned flags, int priority) {
  return create("hipStreamCreateWithPriority", stream, flags, priority);
}

SOFTGPU_API Result hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return on_device("hipDeviceGetStreamPriorityRange", [&](DeviceContext*) {
    if (least) *least = 1;
    if (greatest) *greatest = -1;
    return kSuccess;
  });
}

// Works on the handle only, so it also succeeds after a fault of the device.
SOFTGPU_API Result hipStreamDestroy(Stream* stream) {
  if (const Result error = enter_hip("hipStreamDestroy")) return remember(error);
  const Lock lock = lock_state();
  if (!state().streams.contains(stream) || stream->legacy) return remember(kInvalidHandle);
  close_stream(stream);
  return kSuccess;
}

SOFTGPU_API Result hipStreamSynchronize(Stream* handle) {
  return on_stream("hipStreamSynchronize", handle,
                   [&](const StreamPtr& stream, Lock* lock) -> Result {
                     record("synchronize", {{"stream", handle_text(handle)}});
                     if (const Result error = forbid_in_capture_of(*stream)) return error;
                     wait_for_stream(lock, stream);
                     return stream->context->failed;
                   });
}

SOFTGPU_API Result hipStreamQuery(Stream* handle) {
  return on_stream("hipStreamQuery", handle, [&](const StreamPtr& stream, Lock*) -> Result {
    if (stream->capture) return forbid_in_capture_of(*stream);
    return is_idle(stream.get()) ? stream->context->failed.load() : kNotReady;
  });
}

SOFTGPU_API Result hipStreamGetDevice(Stream* handle, int* device) {
  return on_stream("hipStreamGetDevice", handle, [&](const StreamPtr& stream, Lock*) {
    *device = stream->context->device;
    return kSuccess;
  });
}

SOFTGPU_API Result hipStreamGetFlags(Stream* handle, unsigned* flags) {
  return on_stream("hipStreamGetFlags", handle, [&](const StreamPtr& stream, Lock*) {
    *flags = stream->flags;
    return kSuccess;
  });
}

SOFTGPU_API Result hipStreamGetPriority(Stream* handle, int* priority) {
  return on_stream("hipStreamGetPriority", handle, [&](const StreamPtr& stream, Lock*) {
    *priority = stream->priority;
    return kSuccess;
  });
}

SOFTGPU_API Result hipLaunchHostFunc(Stream* handle, void (*function)(void*), void* data) {
  return on_stream("hipLaunchHostFunc", handle, [&](const StreamPtr& stream, Lock*) {
    if (!function) return kInvalidValue;
    return submit(stream.get(), {"a host function", host_action(function, data)});
  });
}
