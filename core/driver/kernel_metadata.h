// What an AMD code object says of its kernels' parameters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace opdock {

// By the kernels' names in the image: the sizes of the parameters that a launch gives, in bytes.
// Empty where `image` is no single code object or shows none: an offload bundle, or a damaged one,
// whose judge is the driver. Source: LLVM, "User Guide for AMDGPU Backend", code object metadata.
std::map<std::string, std::vector<uint32_t>> read_kernel_params(std::span<const uint8_t> image);

}  // namespace opdock
