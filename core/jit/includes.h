// The headers outside a program that it may read, found by following its #include lines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/nvrtc.h"

namespace opdock {

// What an #include line names.
struct Include {
  std::string name;
  bool quoted = false;    // "name", not <name>
  bool computed = false;  // by a macro: no name
};

// The #include lines of a text. Those in comments count too: a name too many does no harm.
std::vector<Include> includes_of(std::string_view text);

struct OutsideHeader {
  std::string name;    // as #include spells it; of the same place relative to another: both
  std::string digest;  // SHA-256 of its contents, hex
};

struct OutsideHeaders {
  std::vector<OutsideHeader> named;    // in the folders that options name, sorted by name
  std::vector<OutsideHeader> toolkit;  // in the toolkit's folder, sorted by name
  // An #include whose file is named by a macro: what it reads is not known.
  bool uncertain = false;
};

// Follows every #include of `text` and `embedded`, also those that a condition leaves out, through
// `folders` in order and then `toolkit` (may be empty). Embedded headers come before all folders.
// Files that are nowhere are passed over: the compiler reports them if it needs them.
OutsideHeaders outside_headers(std::string_view text, const std::vector<SourceText>& embedded,
                               const std::vector<std::string>& folders, const std::string& toolkit);

// The folders that -I, --include-path and the like name among `options`, and the files that
// --pre-include names.
struct IncludeOptions {
  std::vector<std::string> folders, files;
};
IncludeOptions include_options(const std::vector<std::string>& options);

}  // namespace opdock
