// Makes every call that changes the file system fail once, with each error that a full or faulty
// disk gives.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>

#include "support.h"

namespace opdock::testing {
namespace {

// The calls that publishing makes and how often; SweepTable.CoversEveryCall compares the table with
// the actual calls.
struct Calls {
  const char* function;
  int count;
};
constexpr Calls kBlobCalls[] = {{"open", 8},      {"write", 4},  {"pwrite", 1},
                                {"ftruncate", 1}, {"fsync", 8},  {"renameat2", 1},
                                {"rename", 1},    {"mkdir", 19}, {"unlink", 4}};
constexpr Calls kFolderCalls[] = {{"open", 9},   {"write", 4},     {"pwrite", 2}, {"ftruncate", 2},
                                  {"fsync", 11}, {"renameat2", 1}, {"rename", 1}, {"mkdir", 20},
                                  {"unlink", 4}, {"fchmod", 2}};

struct Case {
  bool folder;
  const char* function;
  int nth;
  int error;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool folder : {false, true}) {
    for (const Calls& calls :
         folder ? std::span<const Calls>(kFolderCalls) : std::span<const Calls>(kBlobCalls)) {
      for (int nth = 1; nth <= calls.count; ++nth) {
        for (const int error : {ENOSPC, EIO, EDQUOT}) {
          all.push_back({folder, calls.function, nth, error});
        }
      }
    }
  }
  return all;
}

const char* name_of(int error) {
  return error == ENOSPC ? "ENOSPC" : error == EIO ? "EIO" : "EDQUOT";
}

std::shared_ptr<CacheEntry> attempt(const CacheFolder& folder, bool is_folder,
                                    std::vector<Reason>* reasons) {
  const auto cache = folder.open(reasons);
  const CacheRequest asked = is_folder ? plugin_request() : request();
  const auto lock = cache->lock(asked, maker(), nullptr, reasons);
  return is_folder ? publish_plugin(cache.get(), reasons)
                   : cache->publish_blobs(asked, maker(), blobs(), reasons);
}

class Sweep : public ::testing::TestWithParam<Case> {};

TEST_P(Sweep, FailsCleanly) {
  CacheFolder folder;
  arm(folder.path("cache"), {GetParam().function, GetParam().nth, Fault::kFail, GetParam().error});
  std::vector<Reason> reasons;
  std::shared_ptr<CacheEntry> entry = attempt(folder, GetParam().folder, &reasons);
  const std::vector<std::string> calls = disarm();
  ASSERT_GE(calls.size(), 1u) << "nothing of it was called";
  for (const Reason& reason : reasons) {
    EXPECT_TRUE(reason.code == Code::kCacheWrite || reason.code == Code::kCacheLock)
        << to_text(reason);
  }
  if (entry == nullptr) {
    EXPECT_TRUE(has(reasons, Code::kCacheWrite)) << text(reasons);
    EXPECT_NE(text(reasons).find(std::generic_category().message(GetParam().error)),
              std::string::npos)
        << text(reasons);
    // Nothing is left behind, unless the removal itself failed.
    if (std::string(GetParam().function) != "unlink") {
      EXPECT_TRUE(folder.temp().empty());
    }
    const CacheRequest asked = GetParam().folder ? plugin_request() : request();
    EXPECT_TRUE(folder.open()->find(asked, nullptr, nullptr).empty());
  }
  entry.reset();
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

INSTANTIATE_TEST_SUITE_P(Publish, Sweep, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.folder ? "folder_" : "blobs_") + info.param.function + "_" +
         std::to_string(info.param.nth) + "_" + name_of(info.param.error);
});

TEST(SweepTable, CoversEveryCall) {
  for (const bool is_folder : {false, true}) {
    CacheFolder folder;
    arm(folder.path("cache"), {});
    std::vector<Reason> reasons;
    ASSERT_NE(attempt(folder, is_folder, &reasons), nullptr) << text(reasons);
    const std::vector<std::string> calls = disarm();
    const auto table =
        is_folder ? std::span<const Calls>(kFolderCalls) : std::span<const Calls>(kBlobCalls);
    size_t covered = 0;
    for (const Calls& of : table) {
      const std::string prefix = std::string(of.function) + " ";
      const auto count = std::count_if(calls.begin(), calls.end(), [&](const std::string& call) {
        return call.starts_with(prefix);
      });
      EXPECT_EQ(count, of.count) << of.function;
      covered += static_cast<size_t>(count);
    }
    EXPECT_EQ(covered, calls.size());
  }
}

}  // namespace
}  // namespace opdock::testing
