// SPDX-License-Identifier: Apache-2.0
#include "inspect/native_names.h"

#include <array>
#include <cctype>

namespace opdock {

NativeKind native_kind(std::string_view file_name) {
  if (file_name.ends_with(".so")) return NativeKind::kLibrary;
  for (size_t at = file_name.find(".so."); at != file_name.npos;
       at = file_name.find(".so.", at + 1)) {
    const std::string_view version = file_name.substr(at + 4);
    if (!version.empty() && std::isdigit(static_cast<unsigned char>(version.front())) != 0 &&
        version.find_first_not_of("0123456789.") == version.npos) {
      return NativeKind::kLibrary;
    }
  }
  for (std::string_view end : {".pyd", ".dll", ".dylib"}) {
    if (file_name.ends_with(end)) return NativeKind::kForeign;
  }
  return file_name.find('.') == file_name.npos ? NativeKind::kMaybe : NativeKind::kOther;
}

bool is_elf_magic(std::string_view first_bytes) {
  return first_bytes.starts_with("\177ELF");
}

bool is_linker_script(std::string_view first_bytes) {
  for (std::string_view begin : {"/* GNU ld", "INPUT(", "INPUT (", "GROUP(", "GROUP ("}) {
    if (first_bytes.starts_with(begin)) return true;
  }
  return false;
}

std::string_view file_name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace opdock
