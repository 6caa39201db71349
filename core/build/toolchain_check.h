// What speaks against a build before it starts: libraries that are not there, architectures that
// its compilers do not know, and versions that do not go together. The rules are core/arch's.
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

// What the compilers and the machine say; what was not asked is empty.
struct ToolchainFacts {
  CompilerVersion compiler;              // of host code
  NvccFacts nvcc;                        // for .cu
  std::vector<NvrtcKnowledge> nvrtcs;    // for [device]
  Version hipcc;                         // for .hip
  std::vector<std::string> unknown_hip;  // of the list, those that hipcc refuses
  std::optional<Version> rocm;           // of the run-time libraries here
  CudaDriver driver;
  TorchFacts torch;  // of this process, else of the environment's Python
  // Of plugin.toml's libraries: what pkg-config does not have, with its words, and the linker.
  std::vector<std::pair<std::string, std::string>> no_packages;
  std::vector<std::string> no_libraries;
};

struct BuildCheck {
  std::vector<Reason> against;   // it must not start
  std::vector<Reason> warnings;  // it may; they belong into its record
};

// - A library that plugin.toml names and that is not there: against (build-no-library).
// - Architectures that lie wholly below plugin.toml's least: against (arch-below-least).
// - An architecture that the compiler does not know: against (build-arch), all of them at once. One
//   that stands for a GPU here (options.gpu_archs): PTX instead, with a warning (arch-ptx).
// - nvcc too old for Opdock, a host compiler that it refuses, another CUDA than that of the PyTorch
//   that the plugin links: against.
// - What the driver, or ROCm's libraries, here would refuse: against if options.must_run_here, else
//   a warning. Images that NVRTC makes: always a warning, for they can be made anew at run time.
// - A version that is not known, no NVRTC at all: a warning. Pure.
BuildCheck check_toolchain(const Manifest& manifest, const BuildOptions& options,
                           const ToolchainFacts& facts);

// Asks those that the plugin takes: starts nvcc, hipcc, opdock-pack, pkg-config and the linker,
// each for 10 seconds at most. Empty for a plugin without device code and libraries: nothing is
// asked.
ToolchainFacts ask_toolchain(const Manifest& manifest, const BuildOptions& options,
                             const BuildTools& tools);

}  // namespace opdock
