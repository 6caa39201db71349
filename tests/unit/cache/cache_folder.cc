// SPDX-License-Identifier: Apache-2.0
#include "cache_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace opdock::testing {

namespace fs = std::filesystem;

CacheFolder::CacheFolder() {
  std::string name = (fs::current_path() / "cache-test-XXXXXX").string();
  root_ = mkdtemp(name.data());
}

CacheFolder::~CacheFolder() {
  std::error_code error;
  fs::remove_all(root_, error);
}

std::string CacheFolder::path(const std::string& name) const {
  return name.empty() ? root_.string() : (root_ / name).string();
}

std::unique_ptr<Cache> CacheFolder::open(std::vector<Reason>* reasons) const {
  CacheOptions options;
  options.folder = path("cache");
  return Cache::open(options, reasons);
}

std::vector<std::string> CacheFolder::list(const std::string& name) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path("cache/v1/" + name), error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

CacheRequest request(const std::string& source) {
  return {"kernels", "axpy for sm_90a", {{"source", source}, {"arch", "sm_90a"}}};
}

CacheRequest plugin_request() {
  return {"plugin", "axpy", {{"source axpy.cc", "int x;"}, {"abi", "0.1"}}};
}

CacheMaker maker(const std::string& id) {
  return {"testing 1.0", id};
}

std::vector<CacheBlob> blobs() {
  return {{"image", std::string(300, 'i')}, {"names", "axpy<float>\n"}, {"empty", ""}};
}

std::shared_ptr<CacheEntry> publish_plugin(Cache* cache, std::vector<Reason>* reasons,
                                           const CacheMaker& by) {
  const std::optional<std::string> folder = cache->make_folder(reasons);
  if (!folder) return nullptr;
  for (const char* name : {"/log", "/objects", "/objects/deep"}) make_folder(*folder + name);
  write(*folder + "/axpy.so", kLibrary);
  write(*folder + "/log/build.log", "done\n");
  write(*folder + "/objects/deep/axpy.o", "object");
  write(*folder + "/log/other", "other");
  auto entry =
      cache->publish_folder(plugin_request(), by, *folder, {"axpy.so", "log/build.log"}, reasons);
  if (entry == nullptr) cache->discard_folder(*folder);
  return entry;
}

void expect_whole(const CacheEntry& entry) {
  EXPECT_EQ(entry.key(), request().key());
  EXPECT_EQ(entry.kind(), "kernels");
  EXPECT_EQ(entry.subject(), request().subject);
  EXPECT_EQ(entry.fields(), request().fields);
  EXPECT_EQ(entry.maker().text, maker().text);
  EXPECT_EQ(entry.maker().id, maker().id);
  for (const CacheBlob& blob : blobs()) {
    std::span<const uint8_t> bytes;
    ASSERT_TRUE(entry.blob(blob.name, &bytes)) << blob.name;
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), blob.bytes);
  }
  std::span<const uint8_t> bytes;
  EXPECT_FALSE(entry.blob("nothing", &bytes));
}

std::string text(const std::vector<Reason>& reasons) {
  std::string all;
  for (const Reason& reason : reasons) all += to_text(reason) + "\n";
  return all;
}

bool has(const std::vector<Reason>& reasons, Code code) {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Reason& reason) { return reason.code == code; });
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void write(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr) << path;
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

void make_folder(const std::string& path) {
  syscall(SYS_mkdirat, AT_FDCWD, path.c_str(), 0700);
}

}  // namespace opdock::testing
