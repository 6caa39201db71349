// The build-id that a linker gives an ELF file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// In hexadecimal; "" if the open file has none, or is no ELF file of 64 bits. Any ELF file's, also
// an executable's: nothing else of it is checked.
std::string build_id(int fd);

}  // namespace opdock
