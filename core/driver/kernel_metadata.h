// Reads the kernels' metadata in an AMD code object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace opdock {

struct KernelMetadata {
  std::vector<uint32_t> params;  // sizes in bytes of the parameters that a launch passes
  uint32_t static_shared = 0;    // bytes
};

// Returns the metadata by the kernels' names in the image. It is empty if `image` is not a single
// code object (an offload bundle) or is damaged, which the driver will refuse. Source: LLVM, "User
// Guide for AMDGPU Backend", code object metadata.
std::map<std::string, KernelMetadata> read_kernel_metadata(std::span<const uint8_t> image);

}  // namespace opdock
