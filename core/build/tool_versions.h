// What the tools that build say about themselves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

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
  std::string toolkit;               // its folder, by its own word; empty: it does not say
  std::optional<HostLimits> limits;  // the host compilers that it accepts
};

// A run-time compiler, as opdock-pack finds it.
struct NvrtcKnowledge {
  Version version;           // 12.9
  std::vector<int> numbers;  // 10 * major + minor of each architecture that it knows, ascending
};

// Each starts its program, at most once in a process for the same file, for 10 seconds at most. An
// empty version: it is not there, does not run, or says something else. Never under AT_SECURE.
// Thread-safe.
CompilerVersion ask_compiler(const BuildTools& tools);                     // tools.cpp
NvccFacts ask_nvcc(const BuildTools& tools);                               // tools.nvcc
Version ask_version(const BuildTools& tools, const std::string& program);  // `program --version`
Version ask_hipcc(const BuildTools& tools);                                // HIP's: 5.2.21153
// These anew each time.
std::vector<NvrtcKnowledge> ask_nvrtcs(const BuildTools& tools);  // tools.pack, oldest first
// Why pkg-config does not have a library, in its words; empty: it has.
std::string ask_package(const BuildTools& tools, const std::string& package);
// Those of the libraries that tools.cpp does not find for -lNAME.
std::vector<std::string> not_linked(const BuildTools& tools,
                                    const std::vector<std::string>& libraries);
// Those of a list of processors that hipcc refuses; none where it says nothing of the kind.
std::vector<std::string> unknown_to_hipcc(const BuildTools& tools, const std::string& archs);

}  // namespace opdock
