// The architectures as arguments of a compiler of hand-written kernels, for build systems.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace opdock::pack {

struct ArchLists {
  std::string cuda;  // docs/architectures.md; empty: the compiler's default
  std::string gpu;   // of `cuda`, what stands for GPUs here (core/arch/choose.h)
  std::string hip;
  int least_cuda = 0;  // the plugin's
};

// Each compiler's arguments; none where nothing decides, which leaves it to the compiler. nullopt
// and *error: they cannot be. nvcc: the program, which is asked what it knows (`nvcc --help`).
std::optional<std::vector<std::string>> nvcc_archs(const ArchLists& lists, const std::string& nvcc,
                                                   std::string* error);
std::optional<std::vector<std::string>> hipcc_archs(const ArchLists& lists, std::string* error);

// Writes the run-time compilers here to standard output, oldest first, a line each: "NVRTC 12.9 50
// 52 53", with the architectures that it knows. Returns the exit status.
int write_known_archs(const std::vector<std::string>& nvrtc_search);

// False, with the reason on standard error, if the list is misspelt. Empty is fine.
bool check_hip_archs(const std::string& list);

}  // namespace opdock::pack
