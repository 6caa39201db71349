// What Python sources import, by their text alone: nothing of them is run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// One statement: "from ..a.b import c, d" has level 2; "import a.b" has no names.
struct PythonImport {
  int level = 0;
  std::string module;
  std::vector<std::string> names;
  bool is_later = false;  // in a function: executed when that is called
};

struct PythonSource {
  // But for those for type checkers, and for running the module as a program. All branches of an
  // `if` or `try` count.
  std::vector<PythonImport> imports;
  std::vector<std::string> texts;  // of string literals anywhere, cut at 256 bytes
  bool loads_libraries = false;    // names ctypes.CDLL or another function that opens libraries
};

// Takes any bytes: of what is no Python something is returned too. Pure.
PythonSource read_python(std::string_view source);

}  // namespace opdock
