// Writing an error's text into the buffer that the caller of the C interface owns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "opdock/plugin.h"

namespace opdock {

// Where a text goes; data may be NULL, then it is dropped.
struct ErrorBuffer {
  char* data = nullptr;
  uint32_t size = 0;

  // Copies the parts one after another, cut at the buffer's end on a character's boundary.
  void write(std::string_view first, std::string_view second = {},
             std::string_view third = {}) const;
};

}  // namespace opdock
