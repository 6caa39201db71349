// The architectures as arguments of a compiler of hand-written kernels, for build systems.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock::pack {

struct ArchFlags {
  std::string compiler;  // "nvcc" or "hipcc": whose arguments
  std::string program;  // nvcc itself, which is asked what it knows; empty: the list is not checked
  std::string cuda_archs;  // docs/architectures.md; empty: the compiler's default
  std::string hip_archs;
  std::string out;  // a file for `nvcc --options-file` or `hipcc @FILE`; empty: standard output
};

// Writes one argument a line: none where nothing decides, which leaves it to the compiler. Runs
// `nvcc --help`. Returns the program's exit status; errors go to standard error.
int write_arch_flags(const ArchFlags& flags);

// False, with the reason on standard error, if the list is misspelt. Empty is fine.
bool check_hip_archs(const std::string& list);

}  // namespace opdock::pack
