// Kills the publisher at every stage: the other processes go on at once, and nothing incomplete is
// found.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include "support.h"

namespace opdock::testing {
namespace {

struct Stage {
  const char* name;
  bool folder;  // publishes a folder instead of blobs
  Fault fault;
};

constexpr Fault::What kBefore = Fault::kKillBefore, kAfter = Fault::kKillAfter;

const Stage kStages[] = {
    {"BeforeTheCacheIsMade", false, {"mkdir", 1, kBefore, 0}},
    {"WithHalfTheFoldersMade", false, {"mkdir", 4, kAfter, 0}},
    {"BeforeItsNameIsInTheLock", false, {"pwrite", 1, kBefore, 0}},
    {"HoldingTheLock", false, {"pwrite", 1, kAfter, 0}},
    {"WithAnEmptyTemporaryFile", false, {"write", 2, kBefore, 0}},
    {"WithAWrittenTemporaryFile", false, {"write", 2, kAfter, 0}},
    {"BeforeTheSync", false, {"fsync", 1, kBefore, 0}},
    {"AfterTheSync", false, {"fsync", 1, kAfter, 0}},
    {"BeforeTheRename", false, {"renameat2", 1, kBefore, 0}},
    {"AfterTheRename", false, {"renameat2", 1, kAfter, 0}},
    {"BeforeTheFolderIsSynced", false, {"fsync", 2, kBefore, 0}},
    {"BeforeTheHistory", false, {"rename", 1, kBefore, 0}},
    {"AfterTheHistory", false, {"rename", 1, kAfter, 0}},
    {"InCollection", false, {"unlink", 3, kBefore, 0}},
    {"AtTheVeryEnd", false, {"unlink", 4, kAfter, 0}},
    {"FolderWithoutItsLock", true, {"pwrite", 2, kBefore, 0}},
    {"FolderMade", true, {"pwrite", 2, kAfter, 0}},
    {"FolderHalfSettled", true, {"fchmod", 2, kBefore, 0}},
    {"FolderWithAnEmptyEntry", true, {"write", 2, kBefore, 0}},
    {"FolderWithItsEntry", true, {"write", 2, kAfter, 0}},
    {"FolderBeforeTheRename", true, {"renameat2", 1, kBefore, 0}},
    {"FolderAfterTheRename", true, {"renameat2", 1, kAfter, 0}},
    {"FolderBeforeItsLockIsRemoved", true, {"unlink", 4, kBefore, 0}},
};

int publish(const CacheFolder& folder, bool is_folder, std::vector<Reason>* reasons) {
  const auto cache = folder.open(reasons);
  const CacheRequest asked = is_folder ? plugin_request() : request();
  const auto lock = cache->lock(asked, maker(), nullptr, reasons);
  const auto entry = is_folder ? publish_plugin(cache.get(), reasons)
                               : cache->publish_blobs(asked, maker(), blobs(), reasons);
  return entry == nullptr;
}

// Expects an eviction to remove what dead processes left, once it is so old that no process can be
// about to lock it.
void expect_swept(const CacheFolder& folder) {
  make_older(folder.path("cache/v1/tmp"), 120);
  evict_now(folder, UINT64_MAX);
  EXPECT_TRUE(folder.temp().empty()) << folder.temp()[0];
}

class Kill : public ::testing::TestWithParam<Stage> {};

TEST_P(Kill, LeavesTheOthersGoingOn) {
  CacheFolder folder;
  const int status = in_child([&] {
    arm(folder.path("cache"), GetParam().fault);
    std::vector<Reason> reasons;
    return publish(folder, GetParam().folder, &reasons);
  });
  ASSERT_EQ(status, -SIGKILL) << "the stage was not reached";
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
  expect_swept(folder);
}

// Another process waits for the lock when the holder is killed.
TEST_P(Kill, FreesTheLockForWhoWaits) {
  CacheFolder folder;
  publish_unrelated_entry(folder);
  const int waiter_done = 7;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = start_child([&] {
    const auto cache = folder.open();
    const auto lock = cache->lock(request(), maker(), nullptr, nullptr);
    char byte = 'r';
    if (::write(ready[1], &byte, 1) != 1) return 1;
    usleep(20000);
    arm(folder.path("cache"), {"", 1 + GetParam().fault.nth, Fault::kKillBefore, 0});
    std::vector<Reason> reasons;
    cache->publish_blobs(request(), maker(), blobs(), &reasons);
    raise(SIGKILL);
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const pid_t waiter = start_child([&] {
    std::vector<Reason> reasons;
    int made = 0;
    const auto cache = folder.open();
    return ask(cache.get(), &made, &reasons) != nullptr && reasons.empty() ? waiter_done : 1;
  });
  EXPECT_EQ(wait_for(holder), -SIGKILL);
  EXPECT_EQ(wait_for(waiter), waiter_done);
  close(ready[0]);
  close(ready[1]);
  expect_cache_usable(folder);
}

INSTANTIATE_TEST_SUITE_P(At, Kill, ::testing::ValuesIn(kStages),
                         [](const auto& info) { return std::string(info.param.name); });

// Kills the publisher before every single call that changes anything.
TEST(KillSweep, BeforeEveryCall) {
  for (const bool is_folder : {false, true}) {
    for (int nth = 1;; ++nth) {
      CacheFolder folder;
      const int status = in_child([&] {
        arm(folder.path("cache"), {"", nth, Fault::kKillBefore, 0});
        std::vector<Reason> reasons;
        return publish(folder, is_folder, &reasons);
      });
      if (status == 0) {
        EXPECT_GT(nth, 40);
        break;
      }
      ASSERT_EQ(status, -SIGKILL) << nth;
      std::vector<Reason> reasons;
      ASSERT_EQ(publish(folder, is_folder, &reasons), 0) << nth << " " << text(reasons);
      const CacheRequest asked = is_folder ? plugin_request() : request();
      ASSERT_EQ(folder.open()->find(asked, nullptr, &reasons).size(), 1u) << nth;
      ASSERT_TRUE(reasons.empty()) << nth << " " << text(reasons);
    }
  }
}

}  // namespace
}  // namespace opdock::testing
