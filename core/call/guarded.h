// The edge of the C interface: no exception crosses it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>

#include "call/error_text.h"
#include "call/invocation.h"
#include "opdock/plugin.h"

namespace opdock {

// What an exception that is being handled comes to.
[[gnu::cold]] opdock_status caught(const ErrorBuffer& error) noexcept;

// Runs body(). Nothing in it throws in the course of things; memory may run out.
template <class F>
[[gnu::always_inline]] inline opdock_status guarded(const ErrorBuffer& error, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return caught(error);
  }
}

// What a function that a plugin calls answers.
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

// A pointer the caller has to pass is NULL.
[[gnu::cold]] opdock_status missing(const ErrorBuffer& error, const char* what);

}  // namespace opdock
