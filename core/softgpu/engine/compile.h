// Compiles device source as C++ for the host, so that the engine can execute it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace softgpu {

struct KernelSource {
  std::string program;  // includes `headers` by their names
  std::string program_name = "plugin.cu";
  std::vector<std::pair<std::string, std::string>> headers;  // name as in #include, and text
  std::vector<std::string> options;  // -D… and -std=… options of the device compiler
  std::vector<std::string> kernels;  // name expressions
  uint32_t warp_size = 32;
  uint32_t arch = 0;  // 900 for sm_90; 0 for an AMD GPU
};

// Returns the library at FOLDER/NAME.so, where NAME is a hash of everything that determines the
// library. It is compiled only if it does not exist, and only once even if several threads and
// processes ask. On failure returns "" and sets *problem, with the compiler's own messages.
// Blocking; needs g++ or clang++ (CXX, else PATH).
std::string compile_kernels(const KernelSource& source, const std::string& folder,
                            std::string* problem);

}  // namespace softgpu
