// Tells which files may be native code, by their names and first bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace opdock {

enum class NativeKind {
  kLibrary,  // "x.so", "x.so.1.2": inspected whatever it holds
  kForeign,  // "x.dll", "x.pyd", "x.dylib": another system's
  kMaybe,    // native if its first bytes are ELF's
  kOther,    // a source, a text or data by its ending
};
NativeKind native_kind(std::string_view file_name);

inline constexpr size_t kMagicBytes = 16;
bool is_elf_magic(std::string_view first_bytes);
// Returns whether the file is a linker script: a text in a library's place, which linkers
// understand and loaders do not.
bool is_linker_script(std::string_view first_bytes);

// Returns the last part of a path.
std::string_view file_name_of(std::string_view path);

}  // namespace opdock
