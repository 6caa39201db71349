// One call of an op, as the host table's functions find it again through opdock_call.host_data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "call/error_text.h"
#include "call/function.h"
#include "call/target.h"
#include "opdock/opdock.h"

namespace opdock {

enum class Phase : uint8_t { kPlan, kPrepare, kRun };

// Lives on the stack of the thread that calls, through the phases of one call. Not copied:
// call.host_data points at it.
struct Invocation {
  Invocation(const opdock_function& what, Target* on, const opdock_call_options& how, Phase when,
             const ErrorBuffer& error)
      : call(on->call), function(what), target(on), phase(when) {
    call.flags = how.flags;
    call.host_data = this;
    call.stream = how.stream;
    call.generator = how.generator;
    call.error = error.data;
    call.error_size = error.size;
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
  const opdock_function& function;
  Target* target;
  Phase phase;
  bool has_text = false;
  std::vector<void*>* extra = nullptr;  // host->workspace's, from the first one to release_extra()
  void release_extra();

 private:
  opdock_status finish_failed(opdock_status status, const char* function);
};

}  // namespace opdock
