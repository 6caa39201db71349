// The table of functions that the host gives to plugins.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "opdock/plugin.h"

namespace opdock {

// One for the process, static: plugins keep it.
extern const opdock_host host_functions;
inline const opdock_host* host_table() {
  return &host_functions;
}

// Where plugins' messages go: the sink added last that has not been removed; without one, warnings
// and errors go to stderr. Plugins outlive runtimes, so the log is the process's. Any thread,
// several at once, and from within a sink. remove_log_sink waits for calls of the sink that are
// under way (so no sink may remove itself); then it is not called any more.
using LogSink = void (*)(void* context, int32_t level, const char* message);
void add_log_sink(LogSink sink, void* context);
void remove_log_sink(void* context);

}  // namespace opdock
