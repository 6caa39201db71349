// Records events, one JSON object per line, in the file that OPDOCK_SOFTGPU_RECORD names.
// SPDX-License-Identifier: Apache-2.0
//
// The drivers' front ends record numbers and texts only. They do without the JSON header, which
// each of the five would parse anew.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>

namespace softgpu {

struct Member {
  const char* name;
  std::variant<int64_t, std::string> value;
};

// Adds "pid" and appends the line with one write(), so that lines of several processes do not mix.
// Writes nothing if the variable is not set.
void record(const char* event, std::initializer_list<Member> members = {});
// Does the same for members of any kind, an object.
void record_object(const char* event, const nlohmann::json& members);

// Formats a pointer or a stream's handle: "0x7f…".
std::string handle_text(const void* handle);

}  // namespace softgpu
