// Lists the places where compilers, build tools and Python packages are searched.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "facts/environment.h"

namespace opdock {

// Returns the names in a folder that begin with `prefix`, the newest version number first; none if
// the folder does not exist.
std::vector<std::string> names_in(const std::filesystem::path& folder, std::string_view prefix);

// Returns the path with links resolved, or unchanged if there is no such file.
std::string resolve_links(const std::string& path);

// Returns "12" for "…/x86_64-linux-gnu-g++-12", "3.11" for "…/python3.11", and "12.9.86" for
// "….so.12.9.86".
std::string number_at_end(const std::string& text);

// Searches by an environment, which must outlive this object.
class ToolSearch {
 public:
  explicit ToolSearch(const Environment& environment) : environment_(environment) {}

  std::string variable(const char* name) const {
    return environment_.variable(name).value_or(std::string());
  }
  // Returns the path of an executable in `folders`, else in PATH; "" if there is none.
  std::string executable(const std::string& name,
                         const std::vector<std::filesystem::path>& folders = {}) const;

  // The folders in which the environment's Python keeps packages, the active environment first.
  std::vector<std::filesystem::path> site_packages() const;
  std::vector<std::filesystem::path> library_folders() const;
  std::vector<std::filesystem::path> cuda_folders() const;
  std::vector<std::filesystem::path> rocm_folders() const;

  // Returns the nvcc of the package nvidia-cuda-nvcc (CUDA 13 and later), if the packages that it
  // needs to compile a .cu file are installed next to it: nvidia-cuda-cccl and nvidia-cuda-runtime.
  // core/pack/find_nvcc.py has the same rule.
  std::string nvcc_of_wheels() const;

  // Returns the version of an installed Python package, from the name of its metadata's folder.
  std::string package_version(const std::string& package) const;

 private:
  std::filesystem::path system(const char* path) const { return environment_.root + path; }
  std::string prefix_of_python() const;

  const Environment& environment_;
};

}  // namespace opdock
