// What the tools that build say about themselves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "arch/compiler_archs.h"
#include "arch/host_limits.h"
#include "base/version.h"
#include "build/tools.h"

namespace opdock {

struct CompilerVersion {
  std::string
      name;  // "g++" or "clang++", whatever the program is called; empty: it does not answer
  Version version;
};

struct NvccFacts {
  Version version;                   // 13.0.88; empty: it does not answer
  CompilerArchs archs;               // what it compiles for
  std::optional<HostLimits> limits;  // the host compilers that it accepts
};

// Each starts its program, at most once in a process for the same path, for 10 seconds at most. An
// empty version: it is not there, does not run, or says something else. Never under AT_SECURE.
// Thread-safe.
CompilerVersion ask_compiler(const BuildTools& tools);                     // tools.cpp
NvccFacts ask_nvcc(const BuildTools& tools);                               // tools.nvcc
Version ask_version(const BuildTools& tools, const std::string& program);  // `program --version`

}  // namespace opdock
