// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc_memo.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "cache/stamps.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

std::string packed(const std::vector<NvrtcFile>& files) {
  std::vector<std::string> texts;
  for (const NvrtcFile& file : files)
    for (const std::string& text : {file.path, file.version.text(), file.id, file.include})
      texts.push_back(text);
  return pack_texts(texts);
}

std::optional<std::vector<NvrtcFile>> unpacked(std::string_view text) {
  const std::optional<std::vector<std::string>> texts = unpack_texts(text);
  if (!texts || texts->empty() || texts->size() % 4 != 0) return std::nullopt;
  std::vector<NvrtcFile> files;
  for (size_t i = 0; i < texts->size(); i += 4)
    files.push_back({(*texts)[i], Version::parse((*texts)[i + 1]).value_or(Version()),
                     (*texts)[i + 2], (*texts)[i + 3]});
  return files;
}

}  // namespace

std::string nvrtc_surroundings(const std::vector<std::string>& folders,
                               const Environment& environment) {
  std::vector<std::string> texts = folders;
  texts.push_back(environment.root);
  for (const char* name : {"PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"})
    texts.push_back(environment.variable(name).value_or(""));
  const char* const loader = secure_getenv("LD_LIBRARY_PATH");
  texts.push_back(loader == nullptr ? "" : loader);
  return pack_texts(texts);
}

std::string nearest_existing(std::string path) {
  std::error_code error;
  while (path.size() > 1 && !fs::exists(path, error)) path = fs::path(path).parent_path().string();
  return path.starts_with('/') ? path : "/";
}

std::vector<NvrtcFile> find_nvrtc_files(const std::vector<std::string>& folders,
                                        const Environment& environment, Cache* cache,
                                        std::vector<std::string>* searched, NvrtcMemo* memo) {
  if (cache == nullptr) return find_nvrtc_files(folders, environment, searched);
  const std::string name = "nvrtcs " + nvrtc_surroundings(folders, environment);
  if (const std::optional<std::string> text = cache->recall(name)) {
    const std::optional<std::string> known = Stamps::from_memo("/", *text);
    if (std::optional<std::vector<NvrtcFile>> files = known ? unpacked(*known) : std::nullopt)
      return *std::move(files);
  }
  Stamps stamps("/");
  std::vector<std::string> tested;
  const std::vector<NvrtcFile> found = find_nvrtc_files(folders, environment, searched, &tested);
  if (found.empty()) return found;  // the next search tells where it has looked in vain
  std::sort(tested.begin(), tested.end());
  tested.erase(std::unique(tested.begin(), tested.end()), tested.end());
  for (const std::string& path : tested) {
    if (!path.starts_with('/')) continue;
    std::error_code failed;
    if (fs::exists(path, failed)) {
      stamps.add(path.substr(1));
    } else {
      stamps.add_absent(path.substr(1));
    }
  }
  if (const std::optional<std::string> text = stamps.to_memo(packed(found))) {
    cache->remember(name, *text);
    if (cache->recall(name) != text) *memo = {name, *text};
  }
  return found;
}

}  // namespace opdock
