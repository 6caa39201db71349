// Which compilers, build tools and drivers' libraries are here, found without running or loading
// any of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "facts/environment.h"

namespace opdock {

struct Tool {
  std::string name;     // "libcuda", "nvml", "nvcc", "hipcc", "g++", "clang++", "meson", "ninja",
                        // "python", "torch", "nvrtc", "hiprtc"
  std::string purpose;  // what it is needed for: "compiling CUDA kernels by hand"
  std::string path;     // empty: not found
  std::string version;  // as far as a file or a name shows it: "12", "13.0.88"; empty: unknown
  std::string package;  // what brings it, where it is missing: "apt install ninja-build"
};

// All of them in a fixed order, found or not. Looks in PATH, the virtual or conda environment,
// CUDA_HOME, ROCM_PATH and the usual system folders; for libraries also where the loader looks.
// Several milliseconds; thread-safe.
std::vector<Tool> find_tools(const Environment& environment);

// The path of one of "nvcc" and "hipcc", as find_tools() has it, without looking for the others.
std::string find_gpu_tool(const std::string& name, const Environment& environment);

}  // namespace opdock
