// The architectures as arguments of a compiler of hand-written kernels, for build systems.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace opdock::pack {

struct ArchFlags {
  std::string compiler;  // "nvcc" or "hipcc": whose arguments
  std::string program;  // nvcc itself, which is asked what it knows; empty: the list is not checked
  std::string cuda_archs;  // docs/architectures.md; empty: the compiler's default
  std::string hip_archs;
  std::string gpu_archs;  // of cuda_archs, what stands for GPUs here (core/arch/choose.h)
  std::string out;  // a file for `nvcc --options-file` or `hipcc @FILE`; empty: standard output
};

// Writes one argument a line: none where nothing decides, which leaves it to the compiler. Runs
// `nvcc --help`. Returns the program's exit status; errors go to standard error.
int write_arch_flags(const ArchFlags& flags);

// Writes the run-time compilers here to standard output, oldest first, a line each: "NVRTC 12.9 50
// 52 53", with the architectures that it knows. Returns the exit status.
int write_known_archs(const std::vector<std::string>& nvrtc_search);

// False, with the reason on standard error, if the list is misspelt. Empty is fine.
bool check_hip_archs(const std::string& list);

}  // namespace opdock::pack
