// Asks the build's tools for their versions and for what they support.
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
  // "g++" or "clang++", whatever the program's file is called; empty: it does not answer.
  std::string name;
  Version version;
};

struct NvccFacts {
  Version version;                   // 13.0.88; empty: it does not answer
  CompilerArchs archs;               // architectures that it compiles for
  std::string toolkit;               // the toolkit's folder, as nvcc reports it; empty: unknown
  std::optional<HostLimits> limits;  // the host compilers that it accepts
};

// An NVRTC that opdock-pack finds.
struct NvrtcKnowledge {
  Version version;           // 12.9
  std::vector<int> numbers;  // 10 * major + minor of each architecture that it knows, ascending
};

// Each of these functions starts its program, at most once in a process for the same file, for at
// most 10 seconds. An empty version means that the program is missing, does not run, or prints
// something else. Nothing is started under AT_SECURE. Thread-safe.
CompilerVersion ask_compiler(const BuildTools& tools);                     // tools.cpp
NvccFacts ask_nvcc(const BuildTools& tools);                               // tools.nvcc
Version ask_version(const BuildTools& tools, const std::string& program);  // `program --version`
Version ask_hipcc(const BuildTools& tools);                                // HIP's: 5.2.21153
// The functions below start their programs again on each call.
std::vector<NvrtcKnowledge> ask_nvrtcs(const BuildTools& tools);  // tools.pack, oldest first
// Returns why pkg-config does not have a library, in its own words; empty if it has it.
std::string ask_package(const BuildTools& tools, const std::string& package);
// Returns whether tools.cpp finds a header, as in #include <header>; true if it cannot be asked.
bool has_header(const BuildTools& tools, const std::string& header);
// Returns those of `libraries` that tools.cpp does not find for -lNAME.
std::vector<std::string> not_linked(const BuildTools& tools,
                                    const std::vector<std::string>& libraries);
// Returns those of a list of AMD processors that hipcc refuses; none if it does not complain about
// any.
std::vector<std::string> unknown_to_hipcc(const BuildTools& tools, const std::string& archs);

}  // namespace opdock
