// The compilers' arguments that name the architectures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "arch/cuda_list.h"

namespace opdock {

// Returns nvcc's arguments: "-gencode=arch=compute_90a,code=sm_90a", and for +PTX
// "…,code=compute_90a". Suffixes stay as written, because kernels written for a suffixed
// architecture compile for no other one. (Such PTX runs only there: "9.0a;9.0+PTX" has PTX for
// newer GPUs too.)
std::vector<std::string> gencode_arguments(const std::vector<CudaTarget>& targets);

// Returns hipcc's arguments: "--offload-arch=gfx90a:xnack+".
std::vector<std::string> offload_arguments(const std::vector<std::string>& targets);

}  // namespace opdock
