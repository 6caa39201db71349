// The edge of the C interface: what goes wrong inside becomes a status and a text, and no exception
// crosses it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.h"
#include "opdock/plugin.h"

namespace opdock {

// Where the caller of a C function wants the text of an error; data may be NULL, then it is
// dropped.
struct ErrorBuffer {
  char* data = nullptr;
  uint32_t size = 0;

  // Copies the parts one after another, cut at the buffer's end on a character's boundary.
  void write(std::string_view first, std::string_view second = {},
             std::string_view third = {}) const;
  // The same; returns the status.
  opdock_status fail(opdock_status status, std::string_view text) const {
    write(text);
    return status;
  }
};

// What the exception that is being handled comes to: opdock::Error has its own status and text.
[[gnu::cold]] opdock_status caught(const ErrorBuffer& error) noexcept;
// The same in words, of what a plugin's function threw: "an exception: …".
std::string text_of_exception();

// Runs body(), whatever it throws. It returns a Status, or an opdock_status for whose text it has
// taken care itself.
template <class F>
[[gnu::always_inline]] inline opdock_status guarded(const ErrorBuffer& error, F&& body) noexcept {
  try {
    if constexpr (std::is_same_v<std::invoke_result_t<F>, Status>) {
      const Status done = body();
      return done.ok() ? OPDOCK_OK : error.fail(done.status, done.text);
    } else {
      return body();
    }
  } catch (...) {
    return caught(error);
  }
}

// A pointer the caller has to pass is NULL.
[[gnu::cold]] opdock_status missing(const ErrorBuffer& error, const char* what);

}  // namespace opdock
