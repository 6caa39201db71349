// Device source compiled as C++ for the host, so that the engine can execute it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace softgpu {

struct KernelSource {
  std::string program;  // includes what it needs by the names of `headers`
  std::string program_name = "plugin.cu";
  std::vector<std::pair<std::string, std::string>> headers;  // name as #include spells it, text
  std::vector<std::string> options;  // -D… and -std=… of the device compiler
  std::vector<std::string> kernels;  // name expressions
  uint32_t warp_size = 32;
  uint32_t arch = 0;  // 900 for sm_90; 0 for an AMD GPU
};

// The library at FOLDER/NAME.so, where NAME comes from the content of all that decides it: made if
// it is not there yet, once however many threads and processes ask. Empty and *problem, with the
// compiler's own messages, otherwise. Blocking; needs g++ or clang++ (CXX, else PATH).
std::string compile_kernels(const KernelSource& source, const std::string& folder,
                            std::string* problem);

}  // namespace softgpu
