// Parses a list of CUDA architectures as people write it, in the grammar of PyTorch's
// TORCH_CUDA_ARCH_LIST.
//
//   list  = item { separator item }         separators: ';' ',' space, tab, newline
//   item  = (number | name) ["+PTX"] | word
//   number = MAJOR "." MINOR ["a" | "f"]    8.0   9.0a   10.0f   12.0+PTX
//          | "sm_" DIGITS ["a" | "f"]       sm_90a, the same as 9.0a
//   name  = Kepler … Blackwell, "NAME+Tegra" and "Kepler+Tesla", with PyTorch's meanings
//   word  = "native" | "all" | "all-major"  with nvcc's meanings
//         | "default"                       what the compiler's age suggests (core/arch/choose.h)
//         | "auto"                          the GPUs that programs here see, perhaps none
//
// Items are a set: repetition and order do not matter, and PTX counts if one copy of an item has
// it. The resulting list is in ascending order; for one number the plain item comes first, then
// `a`, then `f`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"

namespace opdock {

// An architecture to compile for: a cubin, and PTX too if asked for.
struct CudaTarget {
  int number = 0;               // 10 * major + minor: 75, 90, 120
  char suffix = '\0';           // 'a' (exactly this architecture), 'f' (its family) or NUL
  bool ptx = false;             // "+PTX"
  std::string text() const;     // "9.0a+PTX", as parse_cuda_list reads it
  std::string sm() const;       // "sm_90a"
  std::string compute() const;  // "compute_90a"
};

// Adds a target to a list in the order that the top of this file describes; PTX is kept if either
// target has it.
void merge(const CudaTarget& target, std::vector<CudaTarget>* targets);
// Returns "8.0;9.0a+PTX".
std::string to_text(const std::vector<CudaTarget>& targets);

// A list as it was written. The meaning of its words depends on the machine and the compiler
// (core/arch/choose.h).
struct CudaList {
  std::vector<CudaTarget> targets;
  bool native = false;      // the GPUs that programs here see; an error if there are none
  bool automatic = false;   // "auto": the same, without PTX; nothing if there are none
  bool all = false;         // all that the compiler knows, and PTX of the newest
  bool by_default = false;  // "default"
  bool all_major = false;  // the first of each major that the compiler knows, and PTX of the newest
};

// Parses a list. `origin` is where the text comes from, for the message: "--archs",
// "TORCH_CUDA_ARCH_LIST". On an error returns nullopt and sets *reason (arch-list-invalid) with the
// word, its position, and what it should be. A text without items is an error too.
std::optional<CudaList> parse_cuda_list(std::string_view text, std::string_view origin,
                                        Reason* reason);

}  // namespace opdock
