// SPDX-License-Identifier: Apache-2.0
#include "jit/hiprtc_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "jit/nvrtc_files.h"
#include "link/search.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

// Returns whether this is libhiprtc.so.6, or the library that hipRTC was part of before.
bool is_hiprtc(const std::string& name) {
  return name.starts_with("libhiprtc.so.") || name.starts_with("libamdhip64.so.5");
}

// Returns "5.2" for libamdhip64.so.5.2.21153.
Version hiprtc_version(const fs::path& real) {
  const std::string name = real.filename().string();
  const size_t at = name.find(".so.");
  const Version version =
      at == name.npos ? Version() : Version::parse(name.substr(at + 4)).value_or(Version());
  return version.empty() ? version : Version{version.major(), version.minor()};
}

}  // namespace

std::vector<HiprtcFile> find_hiprtc_files(const Environment& environment,
                                          std::vector<std::string>* searched) {
  std::vector<fs::path> roots;
  if (const auto rocm = environment.variable("ROCM_PATH"); rocm && !rocm->empty()) {
    roots.emplace_back(*rocm);
  }
  std::error_code failed;
  std::vector<fs::path> installed;
  for (const auto& entry : fs::directory_iterator(environment.opt, failed)) {
    if (entry.path().filename().string().starts_with("rocm")) installed.push_back(entry.path());
  }
  std::sort(installed.begin(), installed.end());
  roots.insert(roots.end(), installed.begin(), installed.end());

  std::vector<std::string> paths;
  for (const fs::path& root : roots) {
    searched->push_back((root / "lib").string());
    for (const auto& entry : fs::directory_iterator(root / "lib", failed)) {
      if (is_hiprtc(entry.path().filename().string())) paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  if (environment.root.empty()) {
    searched->push_back("the loader's folders");
    for (const char* name : {"libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.5"}) {
      const auto path = find_library(name);
      if (path) paths.push_back(*path);
    }
  }
  std::vector<HiprtcFile> found;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    const fs::path real = fs::canonical(path, failed);
    if (failed || !seen.insert(real.string()).second) continue;
    found.push_back({path, hiprtc_version(real), library_id(real.string())});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const HiprtcFile& a, const HiprtcFile& b) { return b.version < a.version; });
  return found;
}

}  // namespace opdock
