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

// Which interpreters a file is for.
struct PythonNeed {
  std::string version = {};  // "3.11"; "3.13t": the free-threaded one; empty: not known
  bool or_newer = false;     // the stable ABI: that version and all later ones
  bool is_another = false;   // PyPy, GraalPy: none is looked for
  std::string text() const;  // "Python 3.11 or newer"
  auto operator<=>(const PythonNeed&) const = default;
};

// What a file's name says, "x.cpython-311-x86_64-linux-gnu.so", or the folder of packages that it
// is in, ".../lib/python3.11/site-packages/…". Of "x.abi3.so" and "x.so" nothing is known by the
// name.
PythonNeed python_of_path(const std::string& path);
// What a wheel's tags say: "cp39" and "abi3"; "py3" says nothing.
PythonNeed python_of_tags(const std::string& python, const std::string& abi);

// The path of an interpreter's program of those, or of any CPython 3 where no version is known:
// `preferred` (empty: none) if it fits, that of $VIRTUAL_ENV, then those in PATH, where pyenv's
// shims stand for the interpreters behind them. nullopt: none here.
std::optional<std::string> find_python(const PythonNeed& need, const std::string& preferred);

}  // namespace opdock
