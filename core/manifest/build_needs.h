// What a build needs besides its sources, as declared in plugin.toml's table [build].
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace opdock {

struct LinkedLibrary {
  std::string name;            // "openblas", "m"
  bool by_pkg_config = false;  // pkg-config gives its arguments; else it is -lNAME
};

struct BuildNeeds {
  std::vector<std::string> include;  // folders inside the plugin's folder
  std::vector<std::string> defines;  // "NAME" or "NAME=VALUE"
  // Arguments by the compiler that they are for: "c" and "cxx", the host part's sources in that
  // language; "gcc" and "clang", both languages if that is the host compiler; "nvcc"; "hipcc".
  std::map<std::string, std::vector<std::string>> flags;
  std::vector<LinkedLibrary> libraries;  // in the order in which they are linked
  int least_cuda = 0;                    // 10 * major + minor: 80; 0: any will do

  // Returns the names, such as "openblas", that pkg-config is asked for.
  std::vector<std::string> packages() const;
  // Returns the names, such as "m", that the linker is to find by itself.
  std::vector<std::string> plain_libraries() const;
};

// Returns the files and folders in and below the include folders, sorted by name and relative to
// the plugin's `folder`; folders end with '/'. Links to folders are neither listed nor followed.
// Returns at most `most` names.
std::vector<std::string> files_of_includes(const BuildNeeds& needs,
                                           const std::filesystem::path& folder, size_t most);

}  // namespace opdock
