// The compilers' flags that name the architectures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "arch/cuda_list.h"

namespace opdock {

// nvcc's: "-gencode=arch=compute_90a,code=sm_90a", and for +PTX "…,code=compute_90a": as written,
// for kernels written for a suffixed architecture compile for no other one. (Such PTX runs nowhere
// but there: "9.0a;9.0+PTX" has PTX for newer GPUs too.)
std::vector<std::string> gencode_arguments(const std::vector<CudaTarget>& targets);

// hipcc's: "--offload-arch=gfx90a:xnack+".
std::vector<std::string> offload_arguments(const std::vector<std::string>& targets);

}  // namespace opdock
