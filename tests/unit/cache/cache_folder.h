// A cache in its own folder, and what the cache tests publish in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cache/cache.h"

namespace opdock::testing {

// A new folder in the working folder, which other users cannot write; removed when the object dies.
class CacheFolder {
 public:
  CacheFolder();
  ~CacheFolder();
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  std::string path(const std::string& name = "") const;  // the cache is in path("cache")
  std::unique_ptr<Cache> open(std::vector<Reason>* reasons = nullptr) const;
  // Returns the names in v1/<name>, sorted.
  std::vector<std::string> list(const std::string& name) const;
  std::vector<std::string> temp() const { return list("tmp"); }

 private:
  std::filesystem::path root_;
};

inline constexpr const char* kLibrary =
    "\x7f"
    "ELF, as far as the cache is concerned";

CacheRequest request(const std::string& source = "a * x + y");
CacheRequest plugin_request();
CacheMaker maker(const std::string& id = "0123456789abcdef");
std::vector<CacheBlob> blobs();
// Publishes axpy.so and log/build.log from a folder that also has files that must not be published.
std::shared_ptr<CacheEntry> publish_plugin(Cache* cache, std::vector<Reason>* reasons,
                                           const CacheMaker& by = maker());

// Expects the entry to be that of request(), with blobs().
void expect_whole(const CacheEntry& entry);

std::string text(const std::vector<Reason>& reasons);
bool has(const std::vector<Reason>& reasons, Code code);
std::string read(const std::string& path);
// These avoid the library functions that the fault tests replace.
void write(const std::string& path, const std::string& bytes);
void make_folder(const std::string& path);

}  // namespace opdock::testing
