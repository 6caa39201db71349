// Extension modules: which interpreter's process they are for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "note/elf_library.h"

namespace opdock {

// "PyList_New", "_Py_Dealloc".
inline bool is_python_symbol(std::string_view name) {
  return name.starts_with("Py") || name.starts_with("_Py");
}

// Whether the library wants symbols of the interpreter that none of the libraries it names has.
bool wants_python(const Library& library);

// "3.11" of "x.cpython-311-x86_64-linux-gnu.so"; empty where the name does not say it.
std::string python_version_of(const std::string& path);

// The path of an interpreter's program of that version, or of any 3.x for an empty one: `preferred`
// (empty: none) if it fits, that of $VIRTUAL_ENV, then those in PATH. nullopt: none here.
std::optional<std::string> find_python(const std::string& version, const std::string& preferred);

}  // namespace opdock
