// The result of an operation that fails for a single reason.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "opdock/plugin.h"

namespace opdock {

// OPDOCK_OK, or a status and a text that says what was found, what was wanted and what to do.
// Operations that collect several reasons fill a std::vector<Reason> instead.
struct Status {
  opdock_status status = OPDOCK_OK;
  std::string text;
  bool ok() const { return status == OPDOCK_OK; }
};

}  // namespace opdock
