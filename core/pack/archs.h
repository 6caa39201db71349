// The list of CUDA architectures to pack, in TORCH_CUDA_ARCH_LIST's grammar.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace opdock::pack {

struct CudaArch {
  int number = 0;          // 10 * major + minor: 75, 90, 120
  char suffix = 0;         // 'a' (exactly this architecture), 'f' (its family) or 0
  bool ptx = false;        // "+PTX": PTX for it as well, of the plain architecture
  std::string sm() const;  // "sm_90a"
};

// "7.5;8.0 9.0a;12.0+PTX": numbers, each with an optional suffix a or f and an optional +PTX,
// separated by ';', ',' or spaces. On an error returns nullopt and says in *problem what was found
// and wanted. Repetitions are merged; the order is kept.
std::optional<std::vector<CudaArch>> parse_cuda_archs(std::string_view text, std::string* problem);

}  // namespace opdock::pack
