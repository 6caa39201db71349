// Turns architectures into arguments for compilers of hand-written kernels, for build systems.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"

namespace opdock::pack {

struct ArchLists {
  std::string cuda;  // docs/reference/architectures.md; empty: the compiler's default
  std::string gpu;   // the part of `cuda` that GPUs here asked for (core/arch/choose.h)
  std::string hip;
  int least_cuda = 0;  // the plugin's least architecture
};

// Give each compiler's arguments; none if nothing decides, which leaves the choice to the compiler.
// Return a reason if the lists are invalid. nvcc: the program; `nvcc --help` tells what it knows.
std::optional<Reason> nvcc_archs(const ArchLists& lists, const std::string& nvcc,
                                 std::vector<std::string>* out);
std::optional<Reason> hipcc_archs(const ArchLists& lists, std::vector<std::string>* out);

// Writes the run-time compilers here to standard output, the oldest first, one per line: "NVRTC
// 12.9 50 52 53", with the architectures that each knows. Returns the exit status.
int write_known_archs(const std::vector<std::string>& nvrtc_search);

// Returns false, with the reason on standard error, if the list is misspelt. An empty one is fine.
bool check_hip_archs(const std::string& list);

}  // namespace opdock::pack
