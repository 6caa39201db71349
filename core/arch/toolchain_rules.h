// Rules for which versions are compatible: toolkit, driver, PyTorch, host compiler, build tools.
//
// Every rule is a pure function of versions. It returns nullopt if nothing speaks against them, and
// also if a version is unknown and nothing can be said. Each rule states which parts of a version
// count. Sources are named at each rule.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arch/host_limits.h"
#include "base/reason.h"
#include "base/version.h"
#include "note/note.h"

namespace opdock {

// ---- CUDA toolkit against driver

struct CudaDriver {
  std::optional<Version> cuda;  // the CUDA version that libcuda supports: 12.4; nullopt: no driver
  std::string release;          // of the kernel's driver, "535.104.05"; empty if unknown
};

// Checks whether images of `kind` (kCubin or kPtx) that `toolkit` makes run with this driver.
// A cubin needs a driver of the toolkit's major or a later one; since CUDA 11 the minor does not
// matter (before: a driver of the toolkit's version). Source: NVIDIA, "CUDA Compatibility", Minor
// Version Compatibility.
// PTX needs a driver of the toolkit's version, major and minor, because the driver must know the
// version of the PTX instruction set. Source: same, Limitations.
// The version of libcuda counts, not that of the kernel's driver: the forward-compatibility package
// (cuda-compat-…) brings a newer libcuda for an older kernel's driver on data-centre GPUs. Source:
// same, Forward Compatibility. Without a driver there is no objection, because code can be compiled
// for other machines.
std::optional<Reason> check_driver(const Version& toolkit, ImageKind kind,
                                   const CudaDriver& driver);

// Returns whether libcuda is newer than the one that the kernel's driver brings, which means that
// it comes from cuda-compat. Source: NVIDIA, "CUDA Toolkit Release Notes", table of minimum driver
// versions.
bool has_forward_compatibility(const CudaDriver& driver);

// ---- CUDA toolkit against PyTorch

enum class Links { kNothing, kCudart, kTorch };  // kCudart: the shared libcudart

struct TorchFacts {
  Version version;              // 2.13.0; empty: no PyTorch
  std::optional<Version> cuda;  // that PyTorch was built for; nullopt: none
};

// Only a plugin that links libcudart or libtorch shares one with PyTorch. Then CUDA's major must be
// the same; since CUDA 11 the minor may differ (Source: "CUDA Compatibility", Minor Version
// Compatibility: libraries of one major are binary compatible). A plugin that links neither, such
// as Opdock's own and all with a static cudart, works with any PyTorch, because streams, memory and
// contexts belong to the driver. (DeepSpeed refuses 12.1 against 11.8 for every op.)
std::optional<Reason> check_torch(const Version& toolkit, const TorchFacts& torch, Links links);

// ---- host compilers

struct HostCompiler {
  std::string name;  // "g++" or "clang++"
  Version version;   // empty: unknown
};

// Follows nvcc's own check of -ccbin. Returns tool-unknown if the compiler's version is unknown.
std::optional<Reason> check_host_compiler(const Version& toolkit,
                                          const std::optional<HostLimits>& limits,
                                          const HostCompiler& compiler);

// ---- minimum versions

// Returns the oldest version that does what Opdock needs; nullopt for tools not listed here.
//   meson    1.1     meson.build's meson_version
//   ninja    1.8.2   Meson's own minimum (mesonbuild/environment.py, detect_ninja)
//   g++      10      -std=c++20 (GCC manual, C++ Standards Support)
//   clang++  10      -std=c++20 (Clang, C++ Status)
//   nvrtc    11.2    nvrtcGetCUBIN, nvrtcGetSupportedArchs (CUDA 11.1, 11.2 release notes)
//   nvcc     11.0    the oldest whose images the host's rules cover
std::optional<Version> oldest_usable(const std::string& tool);

// Returns tool-too-old, or tool-unknown for an empty version.
std::optional<Reason> check_tool(const std::string& tool, const Version& version);

// .cu files that include plugin.hpp need C++20, which nvcc knows since CUDA 12.0 (release notes).
// `standard` is 17 or 20.
std::optional<Reason> check_cuda_standard(const Version& nvcc, int standard);

// ---- ROCm

// Checks hipcc against the run-time libraries (libamdhip64), whose file names carry the major
// version. Source: AMD, "ROCm Compatibility"; HIP's versioning (major versions break the ABI).
std::optional<Reason> check_rocm(const Version& hipcc, const std::optional<Version>& runtime);

}  // namespace opdock
