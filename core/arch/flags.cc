// SPDX-License-Identifier: Apache-2.0
#include "arch/flags.h"

#include <fmt/format.h>

namespace opdock {

std::vector<std::string> gencode_arguments(const std::vector<CudaTarget>& targets) {
  std::vector<std::string> out;
  for (const CudaTarget& target : targets) {
    out.push_back(fmt::format("-gencode=arch={},code={}", target.compute(), target.sm()));
    if (target.ptx) out.push_back(fmt::format("-gencode=arch={0},code={0}", target.compute()));
  }
  return out;
}

std::vector<std::string> offload_arguments(const std::vector<std::string>& targets) {
  std::vector<std::string> out;
  for (const std::string& target : targets) out.push_back("--offload-arch=" + target);
  return out;
}

}  // namespace opdock
