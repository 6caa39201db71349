// Reads the build-id that a linker writes into an ELF file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// Returns the build-id in hexadecimal, or "" if the open file has none or is not a 64-bit ELF file.
// Works for any ELF file, also for an executable; nothing else in the file is checked.
std::string build_id(int fd);

}  // namespace opdock
