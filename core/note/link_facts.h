// What the dynamic loader would find when it loads a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace opdock {

// A problem that keeps the loader from loading the file. Problems are in the order in which the
// loader would meet them.
struct LinkProblem {
  enum class Kind {
    kMissing,    // name: a library that was found nowhere
    kElsewhere,  // name: a library; where: a file in a place that the loader does not search
    kUnknown,    // name: a library that a described machine may or may not have
    kRefused,    // name, where: a library that exists and is unusable; detail: why
    // name: a symbol version; library, where: its library, by name and by path; detail: the newest
    // version with the same prefix that this library has, if any.
    kVersion,
    kUnmarked,  // the file has DT_RELR but does not require GLIBC_ABI_DT_RELR
    kCpuLevel,  // level: the x86-64 level that `where` needs
    kSymbol,    // name: a symbol that nothing defines; version: the required one
  };
  Kind kind;
  std::string needed_by;  // the dependency that has the problem; empty: the file itself
  std::string name;
  std::string version;
  std::string library;
  std::string where;
  std::string detail;
  int level = 0;
};

// The result of resolving the file's dependencies (core/link).
struct LinkFacts {
  // False if nothing was examined: the file is for another machine, or there is no file.
  bool is_resolved = false;
  std::string program;        // the interpreter whose process was assumed; empty: none
  std::string wanted_python;  // the interpreter it needs, "Python 3.11 or newer"; empty: not an
                              // extension module
  std::vector<LinkProblem> problems;
  // Paths of all libraries that would be loaded with it, in load order.
  std::vector<std::string> libraries;
  // In bytes: the static TLS that would be used, its greatest alignment, the greatest alignment
  // that the process allows, and the static TLS that is left.
  uint64_t tls_wanted = 0, tls_align = 1, tls_most_align = 64;
  std::optional<int64_t> tls_left;
};

}  // namespace opdock
