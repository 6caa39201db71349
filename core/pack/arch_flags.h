// The architectures as arguments of a compiler of hand-written kernels, for build systems.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"

namespace opdock::pack {

struct ArchLists {
  std::string cuda;  // docs/architectures.md; empty: the compiler's default
  std::string gpu;   // of `cuda`, what stands for GPUs here (core/arch/choose.h)
  std::string hip;
  int least_cuda = 0;  // the plugin's
};

// Each compiler's arguments; none where nothing decides, which leaves it to the compiler. A reason
// if the lists are invalid. nvcc: the program; `nvcc --help` says what it knows.
std::optional<Reason> nvcc_archs(const ArchLists& lists, const std::string& nvcc,
                                 std::vector<std::string>* out);
std::optional<Reason> hipcc_archs(const ArchLists& lists, std::vector<std::string>* out);

// Writes the run-time compilers here to standard output, oldest first, a line each: "NVRTC 12.9 50
// 52 53", with the architectures that it knows. Returns the exit status.
int write_known_archs(const std::vector<std::string>& nvrtc_search);

// False, with the reason on standard error, if the list is misspelt. Empty is fine.
bool check_hip_archs(const std::string& list);

}  // namespace opdock::pack
