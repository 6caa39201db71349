// Names of dtypes, devices and value tags, for messages and for the note.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "opdock/plugin.h"

namespace opdock {

inline bool same(opdock_dtype a, opdock_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline bool same(opdock_device a, opdock_device b) {
  return a.type == b.type && a.index == b.index;
}

// Returns "float32", "bfloat16", "uint8", "float8_e4m3fn"; "float4_e2m1fn_x2" for two lanes; "dtype
// code 9 bits 8 lanes 1" for a dtype without a name.
std::string to_text(opdock_dtype dtype);
std::optional<opdock_dtype> parse_dtype(std::string_view text);
// Returns the name of the dtype that another or misspelt name means: "float16" for "fp16", "half"
// and "flaot16". Empty if there is none.
std::string meant_dtype(std::string_view text);

// Returns "cpu", "cuda:0", "rocm:1", "device type 3 index 0".
std::string to_text(opdock_device device);

// Returns what messages call a value of this tag: "a tensor", "an int", "None".
std::string_view tag_text(uint32_t tag);

}  // namespace opdock
