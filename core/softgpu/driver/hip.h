// What the files of libamdhip64.so share. Types and numbers are those of the HIP API reference; the
// result codes that matter are CUDA's numbers (result.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "state.h"
#include "stream.h"

namespace softgpu::hip {

// The device that this thread has chosen; 0 until it does.
int& current_device();

// Initialises HIP if need be, then enter(). Every function but a few begins so.
Result enter_hip(const char* function);
// The device's context; kInvalidDevice if there is none.
Result find_context(int device, DeviceContext** context);

// What each function returns goes through here: hipGetLastError() returns the last failure.
Result remember(Result result);

// body(context) for the current device, without the mutex. Fails as a device does after a fault.
template <typename Body>
Result on_device(const char* function, const Body& body) {
  DeviceContext* context = nullptr;
  Result result = enter_hip(function);
  if (result == kSuccess) result = find_context(current_device(), &context);
  if (result == kSuccess) result = context->failed;
  return remember(result == kSuccess ? body(context) : result);
}

// body(context, lock), under the mutex.
template <typename Body>
Result on_locked_device(const char* function, const Body& body) {
  return on_device(function, [&](DeviceContext* context) {
    Lock lock = lock_state();
    return body(context, &lock);
  });
}

// body(stream, lock) for the stream behind a handle, whose device need not be the current one.
template <typename Body>
Result on_stream(const char* function, Stream* handle, const Body& body) {
  Result result = enter_hip(function);
  if (result != kSuccess) return remember(result);
  DeviceContext* current = nullptr;
  result = find_context(current_device(), &current);
  if (result != kSuccess) return remember(result);
  Lock lock = lock_state();
  const std::shared_ptr<Stream> stream = find_stream(handle, current);
  if (!stream) return remember(kInvalidHandle);
  result = stream->context->failed;
  return remember(result == kSuccess ? body(stream, &lock) : result);
}

}  // namespace softgpu::hip
