// Helpers for the inputs of both choices of architectures, CUDA's and AMD's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "arch/choose.h"

namespace opdock {

// Returns whether somebody wrote anything in this list.
inline bool is_given(const ArchSource& source) {
  return source.text.find_first_not_of(" \t\r\n") != std::string::npos;
}

inline CudaTarget plain(int number, bool ptx = false) {
  CudaTarget target;
  target.number = number;
  target.ptx = ptx;
  return target;
}

inline int number_of(const Gpu& gpu) {
  return 10 * gpu.major + gpu.minor;
}

inline std::vector<Gpu> gpus_of(const std::vector<Gpu>& gpus, Backend backend) {
  std::vector<Gpu> out;
  for (const Gpu& gpu : gpus)
    if (gpu.backend == backend) out.push_back(gpu);
  return out;
}

}  // namespace opdock
