// What a build takes beyond the sources: plugin.toml's table [build].
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace opdock {

struct LinkedLibrary {
  std::string name;            // "openblas", "m"
  bool by_pkg_config = false;  // pkg-config is asked for its arguments; else it is -lNAME
};

struct BuildNeeds {
  std::vector<std::string> include;  // folders inside the plugin's own
  std::vector<std::string> defines;  // "NAME" or "NAME=VALUE"
  // Arguments by whom they are for: "c" and "cxx", the host part's sources in that language; "gcc"
  // and "clang", both languages where that is its compiler; "nvcc"; "hipcc".
  std::map<std::string, std::vector<std::string>> flags;
  std::vector<LinkedLibrary> libraries;  // in the order in which they are linked
  int least_cuda = 0;                    // 10 * major + minor: 80; 0: any will do

  // "openblas" and the like: what pkg-config is asked for.
  std::vector<std::string> packages() const;
  // "m" and the like: what the linker is to find by itself.
  std::vector<std::string> plain_libraries() const;
};

// What lies in and below the include folders, in the order of the names, relative to the plugin's
// `folder`; folders with '/' at their end. Of links to folders what they lead to is left out. At
// most `most` of them.
std::vector<std::string> files_of_includes(const BuildNeeds& needs,
                                           const std::filesystem::path& folder, size_t most);

}  // namespace opdock
