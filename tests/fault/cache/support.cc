// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "base/sha256.h"

namespace opdock::testing {
namespace {

CacheRequest neighbour() {
  return request("another source");
}

}  // namespace

std::shared_ptr<CacheEntry> ask(Cache* cache, int* made, std::vector<Reason>* reasons,
                                const std::function<void()>& make) {
  auto found = cache->find(request(), nullptr, reasons);
  if (!found.empty()) return found[0];
  const auto lock = cache->lock(request(), maker(), nullptr, reasons);
  found = cache->find(request(), nullptr, reasons);
  if (!found.empty()) return found[0];
  ++*made;
  make();
  return cache->publish_blobs(request(), maker(), blobs(), reasons);
}

void publish_unrelated_entry(const CacheFolder& folder) {
  std::vector<Reason> reasons;
  ASSERT_NE(folder.open()->publish_blobs(neighbour(), maker(), blobs(), &reasons), nullptr)
      << text(reasons);
}

void expect_cache_usable(const CacheFolder& folder) {
  std::vector<Reason> reasons;
  const auto cache = folder.open(&reasons);
  EXPECT_EQ(cache->find(neighbour(), nullptr, &reasons).size(), 1u) << text(reasons);
  int made = 0;
  const auto entry = ask(cache.get(), &made, &reasons);
  ASSERT_NE(entry, nullptr) << text(reasons);
  expect_whole(*entry);
  reasons.clear();
  auto plugin = cache->find(plugin_request(), nullptr, &reasons);
  if (plugin.empty()) plugin = {publish_plugin(cache.get(), &reasons)};
  ASSERT_NE(plugin[0], nullptr) << text(reasons);
  EXPECT_EQ(read(plugin[0]->folder() + "/axpy.so"), kLibrary);
  EXPECT_EQ(cache->find(request(), nullptr, &reasons).size(), 1u) << text(reasons);
  EXPECT_EQ(cache->find(plugin_request(), nullptr, &reasons).size(), 1u) << text(reasons);
  EXPECT_TRUE(reasons.empty()) << text(reasons);
}

void make_older(const std::string& path, int64_t seconds) {
  const timespec times[2] = {{0, UTIME_OMIT}, {std::time(nullptr) - seconds, 0}};
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
  if (!std::filesystem::is_directory(path)) return;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    utimensat(AT_FDCWD, entry.path().c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
}

cache::Evicted evict_now(const CacheFolder& folder, uint64_t max_bytes) {
  return cache::evict({folder.path("cache")}, max_bytes);
}

// The head is the magic, the format number, and the first four bytes of their SHA-256
// (docs/reference/cache.md).
std::string newer_format(std::string bytes) {
  bytes[8] = 2;
  const Digest digest = sha256(bytes.substr(0, 12));
  bytes.replace(12, 4, reinterpret_cast<const char*>(digest.data()), 4);
  return bytes;
}

pid_t start_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1000;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int in_child(const std::function<int()>& work) {
  return wait_for(start_child(work));
}

}  // namespace opdock::testing
