// HIP's events.
// SPDX-License-Identifier: Apache-2.0
#include "event.h"
#include "hip.h"

using namespace softgpu;
using namespace softgpu::hip;

namespace {

using StreamPtr = std::shared_ptr<Stream>;

template <typename Body>
Result with_event(const char* function, const Body& body) {
  if (const Result error = enter_hip(function)) return remember(error);
  Lock lock = lock_state();
  return remember(body(&lock));
}

}  // namespace

SOFTGPU_API Result hipEventCreateWithFlags(Event** event, unsigned flags) {
  constexpr unsigned kDisableTiming = 2;
  return on_locked_device("hipEventCreateWithFlags", [&](DeviceContext* context, Lock*) {
    *event = make_event(context, (flags & kDisableTiming) == 0);
    return kSuccess;
  });
}

SOFTGPU_API Result hipEventCreate(Event** event) {
  return hipEventCreateWithFlags(event, 0);
}

SOFTGPU_API Result hipEventDestroy(Event* event) {
  return with_event("hipEventDestroy", [&](Lock*) { return destroy_event(event); });
}

SOFTGPU_API Result hipEventRecord(Event* event, Stream* handle) {
  return on_stream("hipEventRecord", handle, [&](const StreamPtr& stream, Lock*) {
    return record_event(event, stream.get());
  });
}

SOFTGPU_API Result hipEventQuery(Event* event) {
  return with_event("hipEventQuery", [&](Lock*) { return query_event(event); });
}

SOFTGPU_API Result hipEventSynchronize(Event* event) {
  return with_event("hipEventSynchronize",
                    [&](Lock* lock) { return synchronize_event(lock, event); });
}

SOFTGPU_API Result hipEventElapsedTime(float* milliseconds, Event* from, Event* to) {
  return with_event("hipEventElapsedTime",
                    [&](Lock*) { return elapsed_time(milliseconds, from, to); });
}

SOFTGPU_API Result hipStreamWaitEvent(Stream* handle, Event* event, unsigned) {
  return on_stream("hipStreamWaitEvent", handle,
                   [&](const StreamPtr& stream, Lock*) { return wait_event(stream.get(), event); });
}
