// Turns exceptions and errors into a status and a text at the C interface, so that no exception
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

// The caller's buffer for the text of an error. If data is NULL, the text is dropped.
struct ErrorBuffer {
  char* data = nullptr;
  uint32_t size = 0;

  // Concatenates the parts and truncates at the buffer's end, without splitting a UTF-8 character.
  void write(std::string_view first, std::string_view second = {},
             std::string_view third = {}) const;
  // Writes the text and returns the status.
  opdock_status fail(opdock_status status, std::string_view text) const {
    write(text);
    return status;
  }
};

// Translates the exception that is being handled into a status and a text. An opdock::Error brings
// its own.
[[gnu::cold]] opdock_status status_of_exception(const ErrorBuffer& error) noexcept;
// Describes the exception that is being handled, as "an exception: …". For what a plugin's function
// threw.
std::string text_of_exception();

// Runs body() and catches everything that it throws. body() returns a Status, or an opdock_status
// if it has written the text itself.
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
    return status_of_exception(error);
  }
}

// Reports that a required pointer argument is NULL. what: the argument that was wanted.
[[gnu::cold]] opdock_status missing(const ErrorBuffer& error, const char* what);

}  // namespace opdock
