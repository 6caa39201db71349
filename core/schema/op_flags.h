// The flags of an op, by the names that plugin.toml and the note give them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "opdock/plugin.h"

namespace opdock {

struct OpFlag {
  std::string_view name;
  uint32_t bit;
};
inline constexpr OpFlag kOpFlags[] = {
    {"thread-safe", OPDOCK_OP_THREAD_SAFE}, {"capture-safe", OPDOCK_OP_CAPTURE_SAFE},
    {"in-place", OPDOCK_OP_IN_PLACE},       {"deterministic", OPDOCK_OP_DETERMINISTIC},
    {"may-block", OPDOCK_OP_MAY_BLOCK},     {"may-allocate", OPDOCK_OP_MAY_ALLOCATE},
    {"host-sync", OPDOCK_OP_HOST_SYNC},     {"random", OPDOCK_OP_RANDOM},
    {"retains", OPDOCK_OP_RETAINS},
};

// Returns the bits of all known names.
inline uint32_t op_flag_bits(std::span<const std::string> names) {
  uint32_t bits = 0;
  for (const std::string& name : names) {
    for (const OpFlag& flag : kOpFlags) bits |= flag.name == name ? flag.bit : 0;
  }
  return bits;
}

// Where a parameter's tensors lie, by its name in plugin.toml and the note: "cpu", "any".
inline constexpr OpFlag kArgDevices[] = {{"cpu", OPDOCK_ON_CPU}, {"any", OPDOCK_ON_ANY}};

}  // namespace opdock
