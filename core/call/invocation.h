// One call of an op, as the host table's functions find it again through opdock_call.host_data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/guarded.h"
#include "call/function.h"
#include "call/target.h"
#include "opdock/opdock.h"

namespace opdock {

enum class Phase : uint8_t { kPlan, kPrepare, kRun };

// Lives on the stack of the thread that calls, through the phases of one call. Not copied:
// call.host_data points at it.
struct Invocation {
  // options: the caller's, which outlive this.
  Invocation(const opdock_function& what, Target* on, const opdock_call_options& options,
             Phase when, const ErrorBuffer& error)
      : call(on->call),
        function(what),
        target(on),
        how(options),
        phase(when),
        tensors(what.fresh()) {
    call.host_data = this;
    call.stream = how.stream;
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
  // Whether the stream is being captured into a graph: asked of the driver once a call, and only
  // where something depends on it. On the CPU it never is.
  opdock_status is_capturing(bool* out);

  // How many fresh tensors result `i` of the schema has.
  uint32_t tensors_of(uint32_t i) const {
    if (function.is_variable()) return counts[i];
    return function.schema().returns[i].is_fresh_tensor() ? 1 : 0;
  }

  opdock_call call;
  const opdock_function& function;
  Target* target;
  const opdock_call_options& how;
  const opdock_value* args = nullptr;  // of run
  Phase phase;
  bool has_text = false;
  enum class Asked : uint8_t { kUnknown, kNo, kYes };
  Asked capture = Asked::kUnknown;
  Asked tf32 = Asked::kUnknown;              // what how.allows_tf32 has answered
  uint32_t tensors;                          // fresh ones, of all results
  std::array<uint32_t, kMaxReturns> counts;  // of each result, if the function's are variable
  opdock_generator random;                   // what call.generator points at
  std::vector<void*>* extra = nullptr;  // host->workspace's, from the first one to release_extra()
  void release_extra();

 private:
  opdock_status finish_failed(opdock_status status, const char* function);
};

// What a function that a plugin calls answers: guarded(), with the op's name before the text.
template <class F>
[[gnu::always_inline]] inline opdock_status answer(Invocation& in, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    char text[256] = "";
    const opdock_status status = caught({text, sizeof text});
    return in.fail(status, text);
  }
}

// Counts the fresh tensors of the results of a function that is_variable(), by the op's shape
// rules.
opdock_status count_results(Invocation* in, const opdock_value* args);

}  // namespace opdock
