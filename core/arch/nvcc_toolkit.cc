// SPDX-License-Identifier: Apache-2.0
#include "arch/nvcc_toolkit.h"

#include <filesystem>

namespace opdock {

std::string toolkit_of(std::string_view dryrun) {
  constexpr std::string_view kTop = "#$ TOP=";
  const size_t at = dryrun.find(kTop);
  if (at == dryrun.npos) return {};
  dryrun.remove_prefix(at + kTop.size());
  return std::string(dryrun.substr(0, dryrun.find_first_of("\r\n")));
}

std::vector<std::string> library_folders(const std::string& toolkit) {
  namespace fs = std::filesystem;
#if defined(__x86_64__)
  constexpr const char* kNames[] = {"targets/x86_64-linux/lib", "lib64", "lib"};
#else
  constexpr const char* kNames[] = {"targets/aarch64-linux/lib", "targets/sbsa-linux/lib", "lib64",
                                    "lib"};
#endif
  std::vector<std::string> folders;
  for (const char* name : kNames) {
    std::error_code failed;
    const fs::path folder = (fs::path(toolkit) / name).lexically_normal();
    if (fs::is_directory(folder, failed)) folders.push_back(folder.string());
  }
  return folders;
}

}  // namespace opdock
