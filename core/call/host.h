// The table of functions that the host gives to plugins.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "opdock/plugin.h"

namespace opdock {

// One table for the whole process; static, because plugins keep the pointer.
extern const opdock_host host_functions;
inline const opdock_host* host_table() {
  return &host_functions;
}

}  // namespace opdock
