// One call of an op. The host table's functions find it through opdock_call.host_data.
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

// Lives on the calling thread's stack through all phases of one call. Not copyable, because
// call.host_data points to it.
struct Invocation {
  // The options belong to the caller and must outlive this object.
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
  // Handles the status that a plugin's function returned: replaces an unknown status by
  // OPDOCK_INTERNAL, and adds a text to a failure without one.
  opdock_status finish(opdock_status status, const char* function) {
    return status == OPDOCK_OK ? status : finish_failed(status, function);
  }
  // Finds out whether the stream is being captured into a graph. Asks the driver at most once per
  // call, and only if something depends on the answer. Always false on the CPU.
  opdock_status is_capturing(bool* out);

  // Returns how many fresh tensors result `i` of the schema has.
  uint32_t tensors_of(uint32_t i) const {
    if (function.is_variable()) return counts[i];
    return function.schema().returns[i].is_fresh_tensor() ? 1 : 0;
  }

  opdock_call call;
  const opdock_function& function;
  Target* target;
  const opdock_call_options& how;
  const opdock_value* args = nullptr;  // the arguments of run
  Phase phase;
  bool has_text = false;
  enum class Asked : uint8_t { kUnknown, kNo, kYes };
  Asked capture = Asked::kUnknown;
  Asked tf32 = Asked::kUnknown;              // cached answer of how.allows_tf32
  uint32_t tensors;                          // number of fresh tensors of all results
  std::array<uint32_t, kMaxReturns> counts;  // tensors per result, if the function is variable
  opdock_generator random;                   // call.generator points to it
  // Memory from host->workspace. NULL before the first allocation and after release_extra().
  std::vector<void*>* extra = nullptr;
  void release_extra();

 private:
  opdock_status finish_failed(opdock_status status, const char* function);
};

// Runs the body of a function that a plugin calls, as guarded() does, but puts the op's name before
// the error's text.
template <class F>
[[gnu::always_inline]] inline opdock_status answer(Invocation& in, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    char text[256] = "";
    const opdock_status status = status_of_exception({text, sizeof text});
    return in.fail(status, text);
  }
}

// Counts the fresh tensors of each result of a function that is_variable(), with the op's shape
// rules.
opdock_status count_results(Invocation* in, const opdock_value* args);

}  // namespace opdock
