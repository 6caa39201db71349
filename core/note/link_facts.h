// What the dynamic loader would meet when it loads a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace opdock {

// One thing that keeps the loader from loading the file, in the order in which it would stumble.
struct LinkProblem {
  enum class Kind {
    kMissing,    // name: a library that is nowhere
    kElsewhere,  // name: a library; where: a file that the loader does not look at
    kUnknown,    // name: a library that a described machine may or may not have
    kRefused,    // name, where: a library that is there and no use; detail: why
    kVersion,    // name: a symbol version; library: whose; where: what is there instead of it
    kUnmarked,   // relative relocations (DT_RELR) without the need for glibc's mark for them
    kCpuLevel,   // level: of x86-64, that `where` needs
    kTls,        // the block for static TLS is too small; detail: the libraries
    kSymbol,     // name: a symbol that nothing defines; version: the one that is asked for
  };
  Kind kind;
  std::string needed_by;  // the dependency whose need it is; empty: the file's own
  std::string name;
  std::string version;
  std::string library;
  std::string where;
  std::string detail;
  int level = 0;
};

// What became of the file's dependencies (core/link).
struct LinkFacts {
  bool is_resolved = false;   // otherwise nothing was looked at: another machine's file, or no file
  std::string program;        // the interpreter whose process was assumed; empty: none
  std::string wanted_python;  // "Python 3.11 or newer": what it should be; empty: it is no module
  std::vector<LinkProblem> problems;
  std::vector<std::string> libraries;  // paths of all that would be loaded with it, in their order
  // Static TLS that would be taken, its greatest alignment, and what is left, in bytes.
  uint64_t tls_wanted = 0, tls_align = 1, tls_most_align = 64;
  std::optional<int64_t> tls_left;
};

}  // namespace opdock
