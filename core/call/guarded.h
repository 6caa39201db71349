// The edge of the C interface: no exception crosses it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>

#include "call/error_text.h"
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

// A pointer the caller has to pass is NULL.
[[gnu::cold]] opdock_status missing(const ErrorBuffer& error, const char* what);

}  // namespace opdock
