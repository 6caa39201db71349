// Finds what Python sources import, only by their text: nothing of them is run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// One import statement: "from ..a.b import c, d" has level 2; "import a.b" has no names.
struct PythonImport {
  int level = 0;
  std::string module;
  std::vector<std::string> names;
  bool is_later = false;  // in a function, so executed only when that is called
};

struct PythonSource {
  // All imports except those for type checkers, and for running the module as a program. All
  // branches of an `if` or `try` count.
  std::vector<PythonImport> imports;
  std::vector<std::string> texts;  // string literals anywhere, without those above 256 bytes
  bool loads_libraries = false;    // it names ctypes.CDLL or another function that opens libraries
};

// Reads a source. Takes any bytes: for text that is not Python it returns something too. Pure.
PythonSource read_python(std::string_view source);

}  // namespace opdock
