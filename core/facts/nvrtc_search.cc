// SPDX-License-Identifier: Apache-2.0
#include "facts/nvrtc_search.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

namespace opdock {

namespace {

namespace fs = std::filesystem;

// A library of the CUDA Toolkit.
struct ToolkitLibrary {
  const char* prefix;                // of its file names
  const char* wheel;                 // its folder in the wheels for CUDA 12
  std::array<const char*, 2> names;  // the names that the loader is asked for
};
constexpr ToolkitLibrary kNvrtc = {
    "libnvrtc.so.", "cuda_nvrtc", {"libnvrtc.so.12", "libnvrtc.so.13"}};
constexpr ToolkitLibrary kCublasLt = {
    "libcublasLt.so.", "cublas", {"libcublasLt.so.12", "libcublasLt.so.13"}};
// The wheels for each CUDA have it in one folder, and each major version of cuDNN serves several.
constexpr ToolkitLibrary kCudnn = {"libcudnn.so.9", "cudnn", {"libcudnn.so.9", nullptr}};

class ToolkitSearch {
 public:
  ToolkitSearch(const ToolkitLibrary& library, std::vector<std::string>* found,
                std::vector<std::string>* searched, std::vector<std::string>* tested)
      : library_(library), found_(found), searched_(searched), tested_(tested) {}

  // Records that the result depends on the folder's contents, or on whether it exists.
  void note(const fs::path& folder) {
    if (tested_ != nullptr) tested_->push_back(folder.string());
  }

  // Adds every libNAME.so.MAJOR… in the folder. The prefix excludes libnvrtc.alt.so and the
  // builtins.
  void folder(const fs::path& folder) {
    note(folder);
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) return;
    searched_->push_back(folder.string());
    std::vector<fs::path> here;
    for (const auto& entry : fs::directory_iterator(folder, failed))
      if (entry.path().filename().string().starts_with(library_.prefix))
        here.push_back(entry.path());
    std::sort(here.begin(), here.end());
    for (const fs::path& path : here) {
      fs::path real = fs::canonical(path, failed);
      if (!failed && seen_.insert(real.string()).second) found_->push_back(path.string());
    }
  }

  void site_packages(const fs::path& site) {
    note(site);
    std::error_code failed;
    if (!fs::is_directory(site, failed)) return;
    searched_->push_back(site.string());
    note(site / "nvidia");
    folder(site / "nvidia" / library_.wheel / "lib");  // wheels for CUDA 12
    std::vector<fs::path> toolkits;                    // nvidia/cu13 and later
    for (const auto& entry : fs::directory_iterator(site / "nvidia", failed))
      if (entry.path().filename().string().starts_with("cu")) toolkits.push_back(entry.path());
    std::sort(toolkits.begin(), toolkits.end());
    for (const fs::path& toolkit : toolkits) folder(toolkit / "lib");
  }

  // Searches PREFIX/lib/python3.*/{site,dist}-packages.
  void python_prefix(const fs::path& prefix) {
    note(prefix / "lib");
    std::error_code failed;
    std::vector<fs::path> versions;
    for (const auto& entry : fs::directory_iterator(prefix / "lib", failed))
      if (entry.path().filename().string().starts_with("python3")) versions.push_back(entry.path());
    std::sort(versions.begin(), versions.end());
    for (const fs::path& version : versions) {
      site_packages(version / "site-packages");
      site_packages(version / "dist-packages");
    }
  }

  void toolkit(const fs::path& root) {
    note(root / "targets");
    folder(root / "lib64");
    folder(root / "lib");
    std::error_code failed;
    std::vector<fs::path> targets;
    for (const auto& entry : fs::directory_iterator(root / "targets", failed))
      targets.push_back(entry.path());
    std::sort(targets.begin(), targets.end());
    for (const fs::path& target : targets) folder(target / "lib");
  }

 private:
  const ToolkitLibrary& library_;
  std::vector<std::string>* found_;
  std::vector<std::string>* searched_;
  std::vector<std::string>* tested_;  // may be NULL
  std::set<std::string> seen_;
};

std::vector<std::string> candidates(const ToolkitLibrary& library,
                                    const std::vector<std::string>& folders,
                                    const Environment& environment,
                                    std::vector<std::string>* searched,
                                    std::vector<std::string>* tested) {
  const auto variable = [&](const char* name) {
    return environment.variable(name).value_or(std::string());
  };
  std::vector<std::string> found, looked;
  ToolkitSearch search(library, &found, &looked, tested);
  for (const std::string& folder : folders) {
    search.folder(folder);
    search.site_packages(folder);
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    std::string prefix = variable(name);
    if (prefix.empty()) continue;
    search.python_prefix(prefix);
    search.toolkit(prefix);
  }
  // The Python that PATH finds first. Empty and relative entries are skipped: they would mean
  // another folder in every working directory.
  std::string path = variable("PATH");
  for (size_t begin = 0; begin < path.size();) {
    size_t end = std::min(path.find(':', begin), path.size());
    fs::path folder = path.substr(begin, end - begin);
    begin = end + 1;
    if (!folder.is_absolute()) continue;
    search.note(folder);
    std::error_code failed;
    if (fs::exists(folder / "python3", failed)) {
      search.python_prefix(folder.parent_path());
      break;
    }
  }
  if (std::string home = variable("HOME"); !home.empty())
    search.python_prefix(fs::path(home) / ".local");
  search.python_prefix(environment.root + "/usr/local");
  search.python_prefix(environment.root + "/usr");
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string root = variable(name); !root.empty()) search.toolkit(root);
  search.toolkit(environment.root + "/usr/local/cuda");
  // The loader finds the rest: LD_LIBRARY_PATH, ld.so.conf.
  for (const char* name : library.names)
    if (name != nullptr) found.push_back(name);
  if (searched) {
    std::sort(looked.begin(), looked.end());
    looked.erase(std::unique(looked.begin(), looked.end()), looked.end());
    searched->insert(searched->end(), looked.begin(), looked.end());
  }
  return found;
}

}  // namespace

std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders,
                                          std::vector<std::string>* searched) {
  return nvrtc_candidates(folders, current_environment(), searched);
}

std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders,
                                          const Environment& environment,
                                          std::vector<std::string>* searched,
                                          std::vector<std::string>* tested) {
  return candidates(kNvrtc, folders, environment, searched, tested);
}

std::vector<std::string> cublaslt_candidates(const Environment& environment) {
  return candidates(kCublasLt, {}, environment, nullptr, nullptr);
}

std::vector<std::string> cudnn_candidates(const Environment& environment) {
  return candidates(kCudnn, {}, environment, nullptr, nullptr);
}

}  // namespace opdock
