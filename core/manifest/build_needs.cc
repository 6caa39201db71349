// SPDX-License-Identifier: Apache-2.0
#include "manifest/build_needs.h"

#include <algorithm>

namespace opdock {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const BuildNeeds& needs, bool by_pkg_config) {
  std::vector<std::string> names;
  for (const LinkedLibrary& library : needs.libraries)
    if (library.by_pkg_config == by_pkg_config) names.push_back(library.name);
  return names;
}

}  // namespace

std::vector<std::string> BuildNeeds::packages() const {
  return names_of(*this, true);
}

std::vector<std::string> BuildNeeds::plain_libraries() const {
  return names_of(*this, false);
}

std::vector<std::string> files_of_includes(const BuildNeeds& needs, const fs::path& folder,
                                           size_t most) {
  std::vector<std::string> names;
  for (const std::string& include : needs.include) {
    const fs::path name = fs::path(include).lexically_normal();
    names.push_back((name / "").generic_string());
    std::error_code failed;
    for (fs::recursive_directory_iterator at(folder / name, failed), end;
         !failed && at != end && names.size() < most; at.increment(failed)) {
      std::error_code ignored;
      const fs::path inner = at->path().lexically_relative(folder);
      if (!at->is_directory(ignored)) {
        names.push_back(inner.generic_string());
      } else if (!at->is_symlink(ignored)) {
        names.push_back((inner / "").generic_string());
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace opdock
