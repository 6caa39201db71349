// One call of an op, as the host table's functions find it again through opdock_call.host_data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "call/error_text.h"
#include "call/host.h"
#include "call/target.h"
#include "opdock/plugin.h"

namespace opdock {

enum class Phase : uint8_t { kPlan, kPrepare, kRun };

// Lives on the stack of the thread that calls. Not copied: call.host_data points at it.
struct Invocation {
  Invocation(std::string_view name, Target* on, uint32_t flags, void* stream, Phase when,
             const ErrorBuffer& error)
      : op_name(name), target(on), phase(when) {
    call.struct_size = sizeof call;
    call.flags = flags;
    call.host = host_table();
    call.host_data = this;
    call.device.type = on->device.type;
    call.device.index = on->device.index;
    call.facts = on->facts;
    call.stream = stream;
    call.workspace = nullptr;
    call.workspace_bytes = 0;
    call.state = nullptr;
    call.generator = nullptr;
    call.error = error.data;
    call.error_size = error.size;
    call.reserved = 0;
  }
  Invocation(const Invocation&) = delete;
  Invocation& operator=(const Invocation&) = delete;

  // Writes "op: text" to the caller's buffer and returns the status.
  opdock_status fail(opdock_status status, std::string_view text);
  // What a plugin's function returned: an unknown status becomes OPDOCK_INTERNAL, and a failure
  // without a text gets one.
  opdock_status finish(opdock_status status, const char* function) {
    return status == OPDOCK_OK ? status : finish_failed(status, function);
  }

  opdock_call call;
  std::string_view op_name;
  Target* target;
  Phase phase;
  bool has_text = false;
  std::vector<void*> extra;  // host->workspace's
  void release_extra();

 private:
  opdock_status finish_failed(opdock_status status, const char* function);
};

}  // namespace opdock
