// Finds out which Python interpreter an extension module is for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "note/elf_library.h"

namespace opdock {

// Returns whether the name is in Python's C API: "PyList_New", "_Py_Dealloc".
inline bool is_python_symbol(std::string_view name) {
  return name.starts_with("Py") || name.starts_with("_Py");
}

// Returns whether the library wants symbols of the interpreter and names no libpython that has
// them.
bool wants_python(const Library& library);

// The Python interpreters that a file is for.
struct PythonNeed {
  std::string version = {};  // "3.11"; "3.13t": free-threaded; empty: unknown
  bool or_newer = false;     // the stable ABI: that version and all later ones
  bool is_another = false;   // PyPy, GraalPy: none is searched for
  std::string text() const;  // "Python 3.11 or newer"
  auto operator<=>(const PythonNeed&) const = default;
};

// Returns the version from a file's name, "x.cpython-311-x86_64-linux-gnu.so", or from the packages
// folder that contains it, ".../lib/python3.11/site-packages/…". The names "x.abi3.so" and "x.so"
// tell nothing.
PythonNeed python_of_path(const std::string& path);
// Returns the version from a wheel's tags, such as "cp39" and "abi3"; "py3" tells nothing.
PythonNeed python_of_tags(const std::string& python, const std::string& abi);

// Returns the path of an interpreter that fits, or of any CPython 3 if no version is known; nullopt
// if there is none. The order is: `preferred` (empty: none), that of $VIRTUAL_ENV, those in PATH
// (with pyenv's interpreters in place of its shims), and those in /usr/bin.
std::optional<std::string> find_python(const PythonNeed& need, const std::string& preferred);

}  // namespace opdock
