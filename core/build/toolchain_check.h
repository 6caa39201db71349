// Finds what speaks against a build before it starts: missing libraries, architectures that its
// compilers do not know, and versions that do not go together. The rules are in core/arch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arch/toolchain_rules.h"
#include "build/builder.h"
#include "build/tool_versions.h"
#include "build/tools.h"

namespace opdock {

// Facts that the compilers and the machine report; those that were not asked for are empty.
struct ToolchainFacts {
  CompilerVersion compiler;              // for host code
  NvccFacts nvcc;                        // for .cu
  std::vector<NvrtcKnowledge> nvrtcs;    // for [device]
  Version hipcc;                         // for .hip
  std::vector<std::string> unknown_hip;  // processors of the list that hipcc refuses
  std::optional<Version> rocm;           // version of the run-time libraries here
  CudaDriver driver;
  TorchFacts torch;  // PyTorch of this process, else of the environment's Python
  // Libraries of plugin.toml that pkg-config does not have, with its message, and those that the
  // linker does not find.
  std::vector<std::pair<std::string, std::string>> no_packages;
  std::vector<std::string> no_libraries;
};

struct BuildCheck {
  std::vector<Reason> errors;    // reasons why the build must not start
  std::vector<Reason> warnings;  // the build may start; they belong in its record
};

// Checks a build by these rules; a pure function:
// - A library that plugin.toml names is missing: an error (build-no-library).
// - All architectures lie below plugin.toml's least: an error (arch-below-least).
// - The compiler does not know an architecture: an error (build-arch), with all such architectures
//   in one reason. If the architecture stands for a GPU here (options.gpu_archs), PTX is made
//   instead, with a warning (arch-ptx).
// - nvcc is too old for Opdock, refuses the host compiler, or belongs to another CUDA than that of
//   the PyTorch that the plugin links: an error.
// - The driver or ROCm's libraries here would refuse the result: an error if options.must_run_here,
//   else a warning. For images that NVRTC makes it is always a warning, because they can be made
//   again at run time.
// - A version is not known, or there is no NVRTC at all: a warning.
BuildCheck check_toolchain(const Manifest& manifest, const BuildOptions& options,
                           const ToolchainFacts& facts);

// Asks the tools that the plugin needs: starts nvcc, hipcc, opdock-pack, pkg-config and the linker,
// each for at most 10 seconds. For a plugin without device code and libraries nothing is asked, and
// the facts are empty.
ToolchainFacts ask_toolchain(const Manifest& manifest, const BuildOptions& options,
                             const BuildTools& tools);

}  // namespace opdock
