// Events: marks in a stream's order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream.h"

namespace softgpu {

struct Event {
  DeviceContext* context = nullptr;
  bool timing = true;
  bool recorded = false;
  std::shared_ptr<Signal> signal;
  Clock clock;
  std::weak_ptr<Capture> capture;  // recorded in it
};

// Of all these the mutex must be held.

Event* make_event(DeviceContext* context, bool timing);
Result destroy_event(Event* event);
Result record_event(Event* event, Stream* stream);
Result wait_event(Stream* stream, Event* event);
// kNotReady while what it marks is not done.
Result query_event(Event* event);
Result synchronize_event(Lock* lock, Event* event);
Result elapsed_time(float* milliseconds, Event* from, Event* to);

}  // namespace softgpu
