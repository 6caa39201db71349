// Parses a list of AMD GPU architectures as people write it, in the grammar of PyTorch's
// PYTORCH_ROCM_ARCH.
//
//   list = item { separator item }              separators: ';' ',' space, tab, newline
//   item = processor { ":" feature } | "native" | "auto"
//   processor = "gfx" hexadecimal digits, or a generic one: gfx942  gfx90a  gfx9-4-generic
//   feature = ("sramecc" | "xnack") ("+" | "-")   if not named, the image is good for both settings
//
// Items are a set and are returned in ascending order of their names, features in the order
// sramecc, xnack. As the compiler does, the list refuses a processor once with a feature and once
// without, because a program could not tell which image is meant.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"

namespace opdock {

struct RocmList {
  std::vector<std::string> targets;  // target IDs: "gfx90a:sramecc+:xnack-"
  bool native = false;               // the AMD GPUs that programs here see; there must be one
  bool automatic = false;            // "auto": the same, but there may be none
};

// Parses a list. `origin` and the errors (arch-list-invalid) are as in parse_cuda_list().
std::optional<RocmList> parse_rocm_list(std::string_view text, std::string_view origin,
                                        Reason* reason);

// Returns "gfx90a;gfx1030".
std::string to_text(const std::vector<std::string>& targets);

}  // namespace opdock
