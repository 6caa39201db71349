// Tests wrong clocks, and which entries eviction may remove.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "support.h"

namespace opdock::testing {
namespace {

constexpr int64_t kYear = 365 * 86400;

int64_t modified(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? status.st_mtim.tv_sec : 0;
}

std::shared_ptr<CacheEntry> publish(const CacheFolder& folder, const std::string& source) {
  return folder.open()->publish_blobs(request(source), maker(), blobs(), nullptr);
}

bool is_there(const CacheFolder& folder, const std::string& source) {
  return !folder.open()->find(request(source), nullptr, nullptr).empty();
}

TEST(Evict, TakesTheLeastRecentlyUsed) {
  CacheFolder folder;
  for (const char* source : {"a", "b", "c", "d"}) {
    make_older(publish(folder, source)->path(), 7200);
  }
  // marks them as used
  for (const char* source : {"c", "a"}) EXPECT_TRUE(is_there(folder, source));
  make_older(folder.path("cache/v1/kernels/" + request("b").key().substr(0, 2) + "/" +
                         request("b").key() + "/" + maker().id),
             9000);
  const uint64_t all = evict_now(folder, UINT64_MAX).kept_bytes;
  const cache::Evicted done = evict_now(folder, all - 1);
  EXPECT_EQ(done.removed, 1u);
  EXPECT_EQ(done.kept_bytes, all - done.removed_bytes);
  EXPECT_FALSE(is_there(folder, "b"));
  // removes d; a and c were used within the last ten minutes
  EXPECT_EQ(evict_now(folder, 0).removed, 1u);
  EXPECT_TRUE(is_there(folder, "a"));
  EXPECT_TRUE(is_there(folder, "c"));
}

TEST(Evict, TakesNothingThatIsInUse) {
  CacheFolder folder;
  const auto entry = publish(folder, "a");
  const auto plugin = publish_plugin(folder.open().get(), nullptr);
  make_older(entry->path(), kYear);
  make_older(plugin->path(), kYear);
  const cache::Evicted done = evict_now(folder, 0);
  EXPECT_EQ(done.removed, 0u);
  EXPECT_EQ(done.in_use, 2u);
  EXPECT_EQ(read(plugin->folder() + "/axpy.so"), kLibrary);
}

TEST(Evict, TakesNothingThatAnotherProcessUses) {
  CacheFolder folder;
  const std::string path = publish(folder, "a")->path();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = start_child([&] {
    const auto held = folder.open()->find(request("a"), nullptr, nullptr);
    char byte = 'r';
    if (::write(ready[1], &byte, 1) != 1) return 1;
    pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  make_older(path, kYear);
  EXPECT_EQ(evict_now(folder, 0).in_use, 1u);
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_EQ(evict_now(folder, 0).removed, 1u);
  EXPECT_FALSE(is_there(folder, "a"));
  close(ready[0]);
  close(ready[1]);
}

TEST(Evict, TakesWhatNobodyUses) {
  CacheFolder folder;
  make_older(publish(folder, "a")->path(), 7200);
  make_older(publish_plugin(folder.open().get(), nullptr)->path(), 7200);
  const cache::Evicted done = evict_now(folder, 0);
  EXPECT_EQ(done.removed, 2u);
  EXPECT_EQ(done.kept_bytes, 0u);
  EXPECT_TRUE(folder.list("kernels").empty());
  EXPECT_TRUE(folder.list("plugin").empty());
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

TEST(Evict, LeavesABuildAlone) {
  CacheFolder folder;
  const auto cache = folder.open();
  const auto made = cache->make_folder(nullptr);
  write(*made + "/object.o", "half");
  make_older(folder.path("cache/v1/tmp"), kYear);
  EXPECT_EQ(evict_now(folder, 0).swept, 0u);
  EXPECT_EQ(read(*made + "/object.o"), "half");
}

TEST(Evict, SweepsOldLocksButNotHeldOnes) {
  CacheFolder folder;
  const auto cache = folder.open();
  const auto held = cache->lock(request(), maker(), nullptr, nullptr);
  cache->lock(request("b"), maker(), nullptr, nullptr);
  make_older(folder.path("cache/v1/locks"), kYear);
  evict_now(folder, UINT64_MAX);
  EXPECT_EQ(folder.list("locks").size(), 2u);  // the held one and the collector's own
  EXPECT_NE(cache->lock(request("b"), maker(), nullptr, nullptr), nullptr);
}

TEST(Evict, KeepsTheBadForAWhileAndNotTooMany) {
  CacheFolder folder;
  for (int i = 0; i < 20; ++i) {
    const std::string path = publish(folder, "a")->path();
    write(path, "damaged");
    EXPECT_FALSE(is_there(folder, "a"));
  }
  evict_now(folder, UINT64_MAX);
  EXPECT_EQ(folder.list("bad").size(), 32u);  // 16 entries, each with its reason
  make_older(folder.path("cache/v1/bad"), 8 * 86400);
  evict_now(folder, UINT64_MAX);
  EXPECT_TRUE(folder.list("bad").empty());
}

// ---- clocks. Either the process's clock is shifted or the files' times are.

class Clock : public ::testing::TestWithParam<int64_t> {
 protected:
  ~Clock() override { shift_clock(0); }
};

TEST_P(Clock, PublishesFindsAndWaits) {
  CacheFolder folder;
  publish_unrelated_entry(folder);
  shift_clock(GetParam());
  expect_cache_usable(folder);
  shift_clock(0);
  expect_cache_usable(folder);
}

TEST_P(Clock, EvictsNothingNewOrInUse) {
  CacheFolder folder;
  const auto used = publish(folder, "a");
  publish(folder, "b");
  const auto made = folder.open();
  const auto build = made->make_folder(nullptr);
  shift_clock(GetParam());
  publish(folder, "c");
  EXPECT_EQ(evict_now(folder, 0).removed, 0u);
  shift_clock(0);
  EXPECT_EQ(evict_now(folder, 0).removed, 0u);
  EXPECT_EQ(access(build->c_str(), F_OK), 0);
  for (const char* source : {"a", "b", "c"}) EXPECT_TRUE(is_there(folder, source));
}

// Files from a machine with a wrong clock are used, and their times are corrected.
TEST_P(Clock, FilesFromAnotherTime) {
  CacheFolder folder;
  const std::string path = publish(folder, "a")->path();
  publish_plugin(folder.open().get(), nullptr);
  make_older(folder.path("cache"), GetParam());
  EXPECT_TRUE(is_there(folder, "a"));
  EXPECT_LT(std::abs(modified(path) - std::time(nullptr)), 60);
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

TEST_P(Clock, WhatWasNotUsedSinceIsEvictedInTheEnd) {
  CacheFolder folder;
  const std::string path = publish(folder, "a")->path();
  make_older(path, GetParam());
  evict_now(folder, 0);  // corrects the time of an entry dated in the future
  if (GetParam() < 0) {
    EXPECT_LT(std::abs(modified(path) - std::time(nullptr)), 60);
    make_older(path, 7200);
    EXPECT_EQ(evict_now(folder, 0).removed, 1u);
  }
  EXPECT_FALSE(is_there(folder, "a"));
}

TEST_P(Clock, TheRunningTotalIsCountedAnew) {
  CacheFolder folder;
  shift_clock(GetParam());
  publish(folder, "a");
  shift_clock(0);
  write(folder.path("cache/v1/usage"), "rubbish");
  publish(folder, "b");
  EXPECT_NE(read(folder.path("cache/v1/usage")).find(' '), std::string::npos);
  EXPECT_EQ(read(folder.path("cache/v1/usage")).find("rubbish"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(AYearOff, Clock, ::testing::Values(kYear, -kYear), [](const auto& info) {
  return std::string(info.param > 0 ? "Ahead" : "Behind");
});

}  // namespace
}  // namespace opdock::testing
