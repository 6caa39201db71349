// Finds compilers, build tools and drivers' libraries on this machine, without running or loading
// any of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "facts/environment.h"

namespace opdock {

struct Tool {
  std::string name;     // "libcuda", "nvml", "nvcc", "hipcc", "g++", "clang++", "meson", "ninja",
                        // "python", "torch", "nvrtc", "hiprtc", "cudnn"
  std::string purpose;  // its use: "compiling CUDA kernels by hand"
  std::string path;     // empty: not found
  std::string version;  // if a file or a name shows it: "12", "13.0.88"; empty: unknown
  std::string package;  // how to install it: "apt install ninja-build"
};

// Returns all tools in a fixed order, found or not. Searches PATH, the virtual or conda
// environment, CUDA_HOME, ROCM_PATH and the usual system folders, and for libraries also the
// loader's places. Takes several milliseconds. Thread-safe.
std::vector<Tool> find_tools(const Environment& environment);

// Returns the path of "nvcc" or "hipcc" as find_tools() does, without searching for the other
// tools.
std::string find_gpu_tool(const std::string& name, const Environment& environment);

}  // namespace opdock
