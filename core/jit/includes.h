// Finds the headers outside a program that it may read, by following its #include lines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/nvrtc.h"

namespace opdock {

// The file that an #include line names.
struct Include {
  std::string name;
  bool quoted = false;    // "name", not <name>
  bool computed = false;  // by a macro, so there is no name
};

// Returns the #include lines of a text. Those in comments count too: an extra name does no harm.
std::vector<Include> includes_of(std::string_view text);

struct OutsideHeader {
  std::string name;    // as #include spells it; of the same place relative to another: both
  std::string digest;  // SHA-256 of its contents, hex
};

struct OutsideHeaders {
  std::vector<OutsideHeader> named;    // in the folders that options name, sorted by name
  std::vector<OutsideHeader> toolkit;  // in the toolkit's folder, sorted by name
  // An #include names its file by a macro, so what it reads is unknown.
  bool uncertain = false;
};

// Follows every #include of `text` and `embedded`, even those that a condition excludes, through
// `folders` in order and then `toolkit` (may be empty). Embedded headers come before all folders.
// Files that exist nowhere are skipped: the compiler reports them if it needs them.
OutsideHeaders outside_headers(std::string_view text, const std::vector<SourceText>& embedded,
                               const std::vector<std::string>& folders, const std::string& toolkit);

// The folders that -I and --include-path name among `options`, and the files that --pre-include and
// -include name.
struct IncludeOptions {
  std::vector<std::string> folders, files;
};
IncludeOptions include_options(const std::vector<std::string>& options);

}  // namespace opdock
