// SPDX-License-Identifier: Apache-2.0
#include "jit/vocabulary.h"

#include <filesystem>

#include "base/files.h"
#include "base/installed.h"
#include "base/mutex.h"

namespace opdock {

const std::vector<SourceText>& vocabulary() {
  const NoFork no_fork;
  static const std::vector<SourceText>* const all = [] {
    namespace fs = std::filesystem;
    auto* found = new std::vector<SourceText>;
    const fs::path root = installed().device;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(root / "opdock", failed)) {
      if (entry.path().extension() != ".cuh") continue;
      found->push_back(
          {"opdock/" + entry.path().filename().string(), read_file(entry.path()).value_or("")});
    }
    return found;
  }();
  return *all;
}

}  // namespace opdock
