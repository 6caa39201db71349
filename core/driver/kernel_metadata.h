// What an AMD code object says of its kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace opdock {

struct KernelMetadata {
  std::vector<uint32_t> params;  // the sizes of those that a launch gives, in bytes
  uint32_t static_shared = 0;    // bytes
};

// By the kernels' names in the image. Empty where `image` is no single code object or shows none:
// an offload bundle, or a damaged one, which is left to the driver to refuse. Source: LLVM, "User
// Guide for AMDGPU Backend", code object metadata.
std::map<std::string, KernelMetadata> read_kernel_metadata(std::span<const uint8_t> image);

}  // namespace opdock
