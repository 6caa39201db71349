// Declarations that the files of libamdhip64.so share. Types and values are from the HIP API
// reference; the result codes that matter have CUDA's numbers (result.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "state.h"
#include "stream.h"

namespace softgpu::hip {

// The device that this thread has selected; 0 by default.
int& current_device();

// Initialises HIP if necessary, then calls enter(). Nearly every function begins with it.
Result enter_hip(const char* function);
// Finds the device's context; kInvalidDevice if there is none.
Result find_context(int device, DeviceContext** context);

// Stores a function's result for hipGetLastError(), which returns the last failure. Every function
// returns its failures through it.
Result remember(Result result);

// Calls body(context) for the current device, without the mutex. Fails with the device's error
// after a fault.
template <typename Body>
Result on_device(const char* function, const Body& body) {
  DeviceContext* context = nullptr;
  Result result = enter_hip(function);
  if (result == kSuccess) result = find_context(current_device(), &context);
  if (result == kSuccess) result = context->failed;
  return remember(result == kSuccess ? body(context) : result);
}

// Calls body(context, lock) under the mutex.
template <typename Body>
Result on_locked_device(const char* function, const Body& body) {
  return on_device(function, [&](DeviceContext* context) {
    Lock lock = lock_state();
    return body(context, &lock);
  });
}

// Calls body(stream, lock) for the stream of a handle, whose device need not be the current one.
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
