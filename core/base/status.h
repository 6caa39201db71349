// How something went that may fail for one reason, which is reported.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "opdock/plugin.h"

namespace opdock {

// OPDOCK_OK, or a status and a text that says what was found, what was wanted and what to do. Where
// several reasons make up a story, they are collected in a std::vector<Reason> instead.
struct Status {
  opdock_status status = OPDOCK_OK;
  std::string text;
  bool ok() const { return status == OPDOCK_OK; }
};

}  // namespace opdock
