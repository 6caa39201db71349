// Records events, one JSON object per line, in the file that OPDOCK_SOFTGPU_RECORD names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace softgpu {

// Adds "pid" and appends the line with one write(), so that lines of several processes do not mix.
// Writes nothing if the variable is not set.
void record(const char* event, nlohmann::json members);

// Formats a pointer or a stream's handle: "0x7f…".
std::string handle_text(const void* handle);

}  // namespace softgpu
