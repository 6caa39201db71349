// The architectures that a compiler says it can compile for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arch/cuda_list.h"
#include "base/version.h"

namespace opdock {

struct CompilerArchs {
  std::string name;                 // for people: "nvcc 13.0", "NVRTC 12.9"
  std::vector<CudaTarget> targets;  // ascending; suffixed ones are listed by themselves

  bool knows(const CudaTarget& target) const;  // its PTX as well as its cubin
};

// Reads the text of `nvcc --help`, whose list of --gpu-code's values has every architecture with
// its suffixes (--list-gpu-arch lacks them in some releases), or the text of --list-gpu-code. Empty
// if it has no such list.
CompilerArchs archs_of_nvcc(const Version& version, std::string_view help);

// Returns those of a run-time compiler, which lists plain numbers (nvrtcGetSupportedArchs) and
// takes suffixes too: `a` from 9.0 on, in releases since 12.0; `f` from 10.0 on, since 12.9.
CompilerArchs archs_of_nvrtc(const Version& version, const std::vector<int>& numbers);

// Returns whether one of the compilers knows the target.
bool any_knows(const std::vector<CompilerArchs>& compilers, const CudaTarget& target);
// Returns the plain architectures that the compilers know together, ascending.
std::vector<int> numbers_of(const std::vector<CompilerArchs>& compilers);
// Returns "nvcc 13.0 knows 7.5, 8.0, …", for messages.
std::string knowledge_of(const std::vector<CompilerArchs>& compilers);

}  // namespace opdock
