// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "opdock/opdock.h"

namespace opdock::torch {

// Throws what becomes an error of torch: in Python Opdock's own exception for `status`, otherwise a
// std::runtime_error.
[[noreturn]] void fail(opdock_status status, const std::string& text);

}  // namespace opdock::torch
