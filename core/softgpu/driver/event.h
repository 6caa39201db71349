// Events, which mark a position in a stream's order.
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
  std::weak_ptr<Capture> capture;  // the capture that it was recorded in
};

// The mutex must be held for all functions below.

Event* make_event(DeviceContext* context, bool timing);
Result destroy_event(Event* event);
Result record_event(Event* event, Stream* stream);
Result wait_event(Stream* stream, Event* event);
// Returns kNotReady until the commands before the event are complete.
Result query_event(Event* event);
Result synchronize_event(Lock* lock, Event* event);
Result elapsed_time(float* milliseconds, Event* from, Event* to);

}  // namespace softgpu
