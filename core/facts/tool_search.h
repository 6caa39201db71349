// Where compilers, build tools and Python's packages are looked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "facts/environment.h"

namespace opdock {

// Names in a folder that begin with `prefix`, the newest version number first; none if it is not
// there.
std::vector<std::string> names_in(const std::filesystem::path& folder, std::string_view prefix);

// Without links; as it is where there is no such file.
std::string resolve_links(const std::string& path);

// "12" of "…/x86_64-linux-gnu-g++-12", "3.11" of "…/python3.11", "12.9.86" of "….so.12.9.86".
std::string number_at_end(const std::string& text);

// The environment outlives it.
class ToolSearch {
 public:
  explicit ToolSearch(const Environment& environment) : environment_(environment) {}

  std::string variable(const char* name) const {
    return environment_.variable(name).value_or(std::string());
  }
  // An executable in `folders`, then in PATH.
  std::string executable(const std::string& name,
                         const std::vector<std::filesystem::path>& folders = {}) const;

  // Where the environment's Python keeps packages: the active environment first.
  std::vector<std::filesystem::path> site_packages() const;
  std::vector<std::filesystem::path> library_folders() const;
  std::vector<std::filesystem::path> cuda_folders() const;
  std::vector<std::filesystem::path> rocm_folders() const;

  // The nvcc of the package nvidia-cuda-nvcc (CUDA 13 and later), if what it takes beside it to
  // compile a .cu file is there too: nvidia-cuda-cccl and nvidia-cuda-runtime.
  // core/pack/find_nvcc.py has the same rule.
  std::string nvcc_of_wheels() const;

  // The version of an installed Python package, from its metadata's folder name.
  std::string package_version(const std::string& package) const;

 private:
  std::filesystem::path system(const char* path) const { return environment_.root + path; }
  std::string prefix_of_python() const;

  const Environment& environment_;
};

}  // namespace opdock
