// A list of CUDA architectures as people write it, in the grammar of PyTorch's
// TORCH_CUDA_ARCH_LIST.
//
//   list  = item { separator item }         separators: ';' ',' space, tab, newline
//   item  = (number | name) ["+PTX"] | word
//   number = MAJOR "." MINOR ["a" | "f"]    8.0   9.0a   10.0f   12.0+PTX
//          | "sm_" DIGITS ["a" | "f"]       sm_90a, the same as 9.0a
//   name  = Kepler … Blackwell, "NAME+Tegra" and "Kepler+Tesla", with PyTorch's meanings
//   word  = "native" | "all" | "all-major"  with nvcc's meanings
//         | "default"                       what the compiler's age suggests (core/arch/choose.h)
//
// Items are a set: written twice, in another order or with PTX once, they mean the same. The list
// that comes out is in ascending order, of one number the plain one first, then `a`, then `f`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"

namespace opdock {

// What to compile for: a cubin, and PTX too if asked for.
struct CudaTarget {
  int number = 0;               // 10 * major + minor: 75, 90, 120
  char suffix = '\0';           // 'a' (exactly this architecture), 'f' (its family) or NUL
  bool ptx = false;             // "+PTX"
  std::string text() const;     // "9.0a+PTX", as parse_cuda_list reads it
  std::string sm() const;       // "sm_90a"
  std::string compute() const;  // "compute_90a"
};

// Adds one to a list in the order that the head of this file describes; PTX is kept if either has
// it.
void merge(const CudaTarget& target, std::vector<CudaTarget>* targets);
// "8.0;9.0a+PTX"
std::string to_text(const std::vector<CudaTarget>& targets);

// A list as it was written: the words depend on the machine and the compiler (core/arch/choose.h).
struct CudaList {
  std::vector<CudaTarget> targets;
  bool native = false;      // the GPUs that programs here see
  bool all = false;         // all that the compiler knows, and PTX of the newest
  bool by_default = false;  // "default"
  bool all_major = false;  // the first of each major that the compiler knows, and PTX of the newest
};

// `origin` is where the text comes from, for the message: "--archs", "TORCH_CUDA_ARCH_LIST". An
// error is nullopt and *reason (arch-list-invalid) with the word, its position, and what it should
// be. A text with no item is an error too.
std::optional<CudaList> parse_cuda_list(std::string_view text, std::string_view origin,
                                        Reason* reason);

}  // namespace opdock
