// What the C functions that return a JSON report have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/guarded.h"
#include "opdock/opdock.h"
#include "report/json.h"

namespace opdock {

// Throws Error if the argument of that name is NULL.
void need(const void* argument, const char* name, const char* wanted = "a value");
// Returns the report's text, to be freed with opdock_free.
char* to_c_text(const Report& json);

// Implements a C function that reports: puts the text of make()'s report into *out. A thrown
// opdock::Error becomes its own status.
template <class Make>
opdock_status report(const Make& make, char** out, const ErrorBuffer& error) noexcept {
  return guarded(error, [&] {
    need(out, "out", "a place for the text");
    *out = nullptr;
    *out = to_c_text(make());
    return OPDOCK_OK;
  });
}

}  // namespace opdock
