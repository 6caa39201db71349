// One call of an op, as the host table's functions find it again through opdock_call.host_data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "call/error_text.h"
#include "call/target.h"
#include "opdock/plugin.h"

namespace opdock {

enum class Phase : uint8_t { kPlan, kPrepare, kRun };

// Lives on the stack of the thread that calls. Not copied: call.host_data points at it.
struct Invocation {
  Invocation(std::string_view op_name, Target* target, uint32_t flags, void* stream, Phase phase,
             ErrorBuffer error);
  Invocation(const Invocation&) = delete;
  Invocation& operator=(const Invocation&) = delete;

  // Writes "op: text" to the caller's buffer and returns the status.
  opdock_status fail(opdock_status status, std::string_view text);
  // What a plugin's function returned: an unknown status becomes OPDOCK_INTERNAL, and a failure
  // without a text gets one.
  opdock_status finish(opdock_status status, const char* function);

  opdock_call call;
  std::string_view op_name;
  Target* target;
  Phase phase;
  bool has_text = false;
  std::vector<void*> extra;  // host->workspace's
  void release_extra();
};

}  // namespace opdock
