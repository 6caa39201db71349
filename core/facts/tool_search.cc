// SPDX-License-Identifier: Apache-2.0
#include "facts/tool_search.h"

#include <algorithm>
#include <system_error>

#include "base/files.h"
#include "base/version.h"

namespace opdock {

namespace {

namespace fs = std::filesystem;

void add_site_packages(const fs::path& lib, std::vector<fs::path>* folders) {
  for (const std::string& python : names_in(lib, "python3.")) {
    folders->push_back(lib / python / "site-packages");
    folders->push_back(lib / python / "dist-packages");
  }
}

}  // namespace

std::vector<std::string> names_in(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  }
  const auto number = [&](const std::string& name) {
    return Version::parse(name.substr(prefix.size())).value_or(Version());
  };
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const Version first = number(a), second = number(b);
    return first == second ? a < b : second < first;
  });
  return names;
}

std::string resolve_links(const std::string& path) {
  const std::string real = real_path(path);
  return real.empty() ? path : real;
}

std::string number_at_end(const std::string& text) {
  const size_t last = text.find_last_not_of("0123456789.");
  std::string number = last == text.npos ? text : text.substr(last + 1);
  while (number.starts_with('.')) number.erase(0, 1);
  return number;
}

std::string ToolSearch::executable(const std::string& name,
                                   const std::vector<fs::path>& folders) const {
  for (const fs::path& folder : folders) {
    if (is_executable(folder / name)) return (folder / name).string();
  }
  return find_executable(variable("PATH"), name);
}

std::vector<fs::path> ToolSearch::site_packages() const {
  std::vector<fs::path> folders;
  for (const std::string& prefix :
       {variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"), prefix_of_python()}) {
    if (!prefix.empty()) add_site_packages(fs::path(prefix) / "lib", &folders);
  }
  add_site_packages(system("/usr/local/lib"), &folders);
  folders.push_back(system("/usr/lib/python3/dist-packages"));
  return folders;
}

std::vector<fs::path> ToolSearch::library_folders() const {
  return {system("/usr/lib/x86_64-linux-gnu"), system("/usr/lib/aarch64-linux-gnu"),
          system("/usr/lib64"), system("/usr/lib"), system("/usr/local/lib")};
}

std::vector<fs::path> ToolSearch::cuda_folders() const {
  std::vector<fs::path> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"}) {
    if (const std::string folder = variable(name); !folder.empty()) folders.emplace_back(folder);
  }
  folders.push_back(system("/usr/local/cuda"));
  for (const std::string& name : names_in(system("/usr/local"), "cuda-")) {
    folders.push_back(system("/usr/local") / name);
  }
  return folders;
}

std::vector<fs::path> ToolSearch::rocm_folders() const {
  std::vector<fs::path> folders;
  if (const std::string folder = variable("ROCM_PATH"); !folder.empty()) {
    folders.emplace_back(folder);
  }
  folders.push_back(fs::path(environment_.opt) / "rocm");
  for (const std::string& name : names_in(environment_.opt, "rocm-")) {
    folders.push_back(fs::path(environment_.opt) / name);
  }
  return folders;
}

std::string ToolSearch::nvcc_of_wheels() const {
  std::error_code error;
  const auto has = [&](const fs::path& path) { return fs::exists(path, error); };
  for (const fs::path& folder : site_packages()) {
    for (const std::string& name : names_in(folder / "nvidia", "cu")) {
      const fs::path wheel = folder / "nvidia" / name;
      if (is_executable(wheel / "bin/nvcc") && has(wheel / "include/cuda_runtime.h") &&
          has(wheel / "lib/libcudart_static.a") &&
          (has(wheel / "include/nv/target") || has(wheel / "include/cccl/nv/target"))) {
        return (wheel / "bin/nvcc").string();
      }
    }
  }
  return {};
}

std::string ToolSearch::package_version(const std::string& package) const {
  for (const fs::path& folder : site_packages()) {
    for (const std::string& name : names_in(folder, package + "-")) {
      const std::string rest = name.substr(package.size() + 1);
      for (const char* end : {".dist-info", ".egg-info"}) {
        if (rest.ends_with(end)) return rest.substr(0, rest.size() - std::string_view(end).size());
      }
    }
  }
  return {};
}

std::string ToolSearch::prefix_of_python() const {
  const std::string python = executable("python3");
  return python.empty() ? std::string() : fs::path(python).parent_path().parent_path().string();
}

}  // namespace opdock
