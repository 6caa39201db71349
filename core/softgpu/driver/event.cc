// SPDX-License-Identifier: Apache-2.0
#include "event.h"

#include "capture.h"

namespace softgpu {
namespace {

// Returns the error that a query about the event has to return; kSuccess if there is none.
Result check(const Event* event) {
  const auto found = state().events.find(const_cast<Event*>(event));
  if (found == state().events.end()) return kInvalidHandle;
  if (!event->capture.expired()) return kCapturedEvent;
  return event->context->failed;
}

}  // namespace

Event* make_event(DeviceContext* context, bool timing) {
  auto event = std::make_shared<Event>();
  event->context = context;
  event->timing = timing;
  return (state().events[event.get()] = event).get();
}

Result destroy_event(Event* event) {
  return state().events.erase(event) == 1 ? kSuccess : kInvalidHandle;
}

Result record_event(Event* event, Stream* stream) {
  if (!state().events.contains(event)) return kInvalidHandle;
  if (event->context != stream->context) return kInvalidHandle;
  event->capture = stream->capture;
  if (stream->capture) return kSuccess;
  if (const Result error = submit(stream, {"an event"}, &event->signal)) return error;
  event->clock = stream->clock;
  event->recorded = true;
  return kSuccess;
}

Result wait_event(Stream* stream, Event* event) {
  if (!state().events.contains(event)) return kInvalidHandle;
  if (const std::shared_ptr<Capture> capture = event->capture.lock()) {
    return join_capture(stream, capture);
  }
  if (stream->capture) return kCaptureIsolation;
  if (event->recorded) depend(stream, event->signal, event->clock);
  return kSuccess;
}

Result query_event(Event* event) {
  if (const Result error = check(event)) return error;
  if (!event->recorded) return kSuccess;
  if (!event->signal->done) return kNotReady;
  join(&state().host, event->clock);
  return kSuccess;
}

Result synchronize_event(Lock* lock, Event* event) {
  if (const Result error = check(event)) return error;
  DeviceContext* const context = event->context;
  if (event->recorded) wait_for(lock, event->signal, event->clock);
  return context->failed;
}

Result elapsed_time(float* milliseconds, Event* from, Event* to) {
  for (Event* event : {from, to}) {
    if (const Result error = check(event)) return error;
    if (!event->recorded || !event->timing) return kInvalidHandle;
    if (!event->signal->done) return kNotReady;
  }
  const std::chrono::duration<float, std::milli> time = to->signal->when - from->signal->when;
  *milliseconds = time.count();
  return kSuccess;
}

}  // namespace softgpu
