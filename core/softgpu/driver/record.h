// What happened, one JSON object a line, appended to the file that OPDOCK_SOFTGPU_RECORD names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace softgpu {

// Adds "pid" and writes the line with one write(), so that lines of several processes do not mix.
// Without the variable nothing is written.
void record(const char* event, nlohmann::json members);

// Pointers and streams as text: "0x7f…".
std::string handle_text(const void* handle);

}  // namespace softgpu
