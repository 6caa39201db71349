// Which files may be native code, by their names and first bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace opdock {

enum class NativeKind {
  kLibrary,  // "x.so", "x.so.1.2": looked at whatever it holds
  kForeign,  // "x.dll", "x.pyd", "x.dylib": another system's
  kMaybe,    // native if its first bytes are ELF's
  kOther,    // a source, a text or data by its ending
};
NativeKind native_kind(std::string_view file_name);

inline constexpr size_t kMagicBytes = 16;
bool is_elf_magic(std::string_view first_bytes);
// A text in a library's place, with which linkers, not loaders, go on.
bool is_linker_script(std::string_view first_bytes);

// The last part of a path.
std::string_view file_name_of(std::string_view path);

}  // namespace opdock
