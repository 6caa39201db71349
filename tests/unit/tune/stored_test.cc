// Tests measured choices as cache entries: kept, replaced, listed, forgotten, damaged.
// SPDX-License-Identifier: Apache-2.0
#include "tune/stored.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "cache/manage.h"
#include "cache_folder.h"

namespace opdock {
namespace {

const TuningScope kScope = {"softmax", "0.1.0", "00ff", "GPU, sm_90, 132 multiprocessors"};

TunedResult result(uint64_t question, int32_t choice, const std::string& situation = "rows") {
  return {question, choice, 4, situation, 20.5, 10.25};
}

class Stored : public ::testing::Test {
 protected:
  cache::Layout layout() const { return {folder_.path("cache")}; }
  std::vector<std::pair<uint64_t, int32_t>> read(const TuningScope& scope = kScope) {
    return choices_of(read_tuned(folder_.open().get(), scope, &reasons_));
  }
  TunedChoices store(const std::vector<TunedResult>& results, const TuningScope& scope = kScope) {
    std::vector<TunedResult> now;
    EXPECT_TRUE(store_tuned(folder_.open().get(), scope, results, &now, &reasons_)) << text();
    return choices_of(now);
  }
  std::string text() const { return opdock::testing::text(reasons_); }
  // Returns the path of the only entry file.
  std::string file() const {
    const std::vector<cache::Variant> all = cache::list_variants(layout());
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? "" : all[0].path;
  }

  opdock::testing::CacheFolder folder_;
  std::vector<Reason> reasons_;
};

TEST_F(Stored, IsReadBack) {
  EXPECT_TRUE(read().empty());
  EXPECT_FALSE(std::filesystem::exists(folder_.path("cache"))) << "looking makes no folder";
  const TunedChoices wanted = {{3, 1}, {UINT64_MAX, 2}};
  EXPECT_EQ(store({result(UINT64_MAX, 2), result(3, 1)}), wanted) << "by question";
  EXPECT_EQ(read(), wanted);
  EXPECT_EQ(text(), "");
  const std::vector<TunedEntry> listed = list_tuned(layout());
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].scope, kScope);
  EXPECT_EQ(listed[0].path, file());
  EXPECT_GT(listed[0].created, 0);
  ASSERT_EQ(listed[0].results.size(), 2u);
  EXPECT_EQ(listed[0].results[0].situation, "rows");
  EXPECT_EQ(listed[0].results[0].count, 4u);
  EXPECT_EQ(listed[0].results[0].default_us, 20.5);
  EXPECT_EQ(listed[0].results[0].best_us, 10.25);
  EXPECT_TRUE(folder_.temp().empty());
}

TEST_F(Stored, IsOfOneBuildOnOneDevice) {
  store({result(3, 1)});
  for (const auto member :
       {&TuningScope::plugin, &TuningScope::version, &TuningScope::build, &TuningScope::device}) {
    TuningScope other = kScope;
    other.*member += "0";
    EXPECT_TRUE(read(other).empty());
  }
  EXPECT_EQ(read().size(), 1u);
}

TEST_F(Stored, IsReplacedQuestionByQuestion) {
  store({result(3, 1), result(4, 2)});
  EXPECT_EQ(store({result(4, 0), result(5, 3)}), (TunedChoices{{3, 1}, {4, 0}, {5, 3}}));
  EXPECT_EQ(read(), (TunedChoices{{3, 1}, {4, 0}, {5, 3}}));
  EXPECT_EQ(store({result(3, -1), result(9, -1)}), (TunedChoices{{4, 0}, {5, 3}}));
  EXPECT_EQ(read(), (TunedChoices{{4, 0}, {5, 3}}));
  file();  // checks that there is exactly one entry
  store({result(4, -1), result(5, -1)});
  EXPECT_TRUE(cache::list_variants(layout()).empty()) << "nothing is left to keep";
  EXPECT_EQ(text(), "");
}

TEST_F(Stored, LosesNothingWhenSeveralStoreAtOnce) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      std::vector<TunedResult> now;
      std::vector<Reason> reasons;
      EXPECT_TRUE(store_tuned(folder_.open().get(), kScope, {result(i, 1)}, &now, &reasons))
          << opdock::testing::text(reasons);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(read().size(), 8u);
}

TEST_F(Stored, LosesNothingWhenProcessesStoreAtOnce) {
  std::vector<pid_t> children;
  for (uint64_t i = 0; i < 4; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    bool is_good = true;
    for (uint64_t k = 0; k < 5 && is_good; ++k) {
      std::vector<TunedResult> now;
      std::vector<Reason> reasons;
      is_good = store_tuned(folder_.open().get(), kScope, {result(8 * i + k, 1)}, &now, &reasons);
    }
    _exit(is_good ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read().size(), 20u);
}

TEST_F(Stored, IsSetAsideIfItIsDamaged) {
  store({result(3, 1)});
  std::string bytes = opdock::testing::read(file());
  bytes[bytes.size() / 2] ^= 1;
  opdock::testing::write(file(), bytes);
  EXPECT_TRUE(read().empty());
  EXPECT_TRUE(opdock::testing::has(reasons_, Code::kCacheDamaged)) << text();
  EXPECT_EQ(info(Code::kCacheDamaged).severity, Severity::kNotice);
  reasons_.clear();
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(text(), "") << "said once";
  store({result(3, 1)});
  EXPECT_EQ(read(), (TunedChoices{{3, 1}}));
}

TEST_F(Stored, IsSetAsideIfItsTextIsNoneOfThisFormat) {
  for (const char* wrong :
       {"", "{", "[]", R"({"format": 2, "results": []})", R"({"format": 1})",
        R"({"format": 1, "results": [{"question": "7"}]})",
        R"({"format": 1, "results": [{"question": "0xzz", "choice": 1, "count": 1,
            "situation": "", "default_us": 1, "best_us": 1}]})",
        R"({"format": 1, "results": [{"question": "0x1", "choice": "1", "count": 1,
            "situation": "", "default_us": 1, "best_us": 1}]})"}) {
    store({result(3, 1)});
    const std::unique_ptr<Cache> cache = folder_.open();
    const auto entries = list_tuned(layout());
    ASSERT_EQ(entries.size(), 1u);
    const CacheRequest request = {"tuning",
                                  "",
                                  {{"plugin", kScope.plugin},
                                   {"version", kScope.version},
                                   {"build", kScope.build},
                                   {"device", kScope.device}}};
    const CacheMaker maker{"", std::filesystem::path(entries[0].path).filename().string()};
    ASSERT_TRUE(cache->replace_blobs(request, maker, {{"choices", wrong}}, &reasons_));
    reasons_.clear();
    EXPECT_TRUE(read().empty()) << wrong;
    EXPECT_TRUE(opdock::testing::has(reasons_, Code::kCacheDamaged)) << wrong;
    EXPECT_TRUE(cache::list_variants(layout()).empty()) << wrong;
    reasons_.clear();
  }
}

TEST_F(Stored, IsForgottenByPluginOrAltogether) {
  TuningScope other = kScope;
  other.plugin = "norm";
  store({result(3, 1)});
  store({result(3, 1)}, other);
  EXPECT_TRUE(forget_tuned(layout(), "soft").empty());
  ASSERT_EQ(forget_tuned(layout(), "softmax").size(), 1u);
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(read(other).size(), 1u);
  store({result(3, 1)});
  EXPECT_EQ(forget_tuned(layout(), "").size(), 2u);
  EXPECT_TRUE(list_tuned(layout()).empty());
}

TEST_F(Stored, IsListedAndClearedWithTheCache) {
  store({result(3, 1)});
  const std::vector<cache::Listed> listed = cache::list_entries(layout(), true);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].variant.kind, "tuning");
  EXPECT_EQ(listed[0].state, cache::OpenedEntry::kGood);
  EXPECT_EQ(listed[0].subject, "softmax 0.1.0 on GPU, sm_90, 132 multiprocessors");
  EXPECT_EQ(listed[0].maker, "opdock bench --tune");
  EXPECT_EQ(cache::clear(layout()).removed, 1u);
  EXPECT_TRUE(read().empty());
}

TEST_F(Stored, MovesWithTheCacheToAnotherMachine) {
  store({result(3, 1)});
  cache::Exported exported;
  ASSERT_TRUE(cache::export_entries(layout(), folder_.path("a.tar"), &exported, &reasons_));
  EXPECT_EQ(exported.entries, 1u);
  cache::clear(layout());
  cache::Imported imported;
  ASSERT_TRUE(cache::import_entries(layout(), folder_.path("a.tar"), false, &imported, &reasons_));
  EXPECT_EQ(read(), (TunedChoices{{3, 1}}));
}

TEST_F(Stored, IsNothingWithoutACache) {
  CacheOptions options;  // no folder
  const std::unique_ptr<Cache> none = Cache::open(options, nullptr);
  EXPECT_TRUE(read_tuned(none.get(), kScope, &reasons_).empty());
  EXPECT_EQ(text(), "");
  std::vector<TunedResult> now;
  EXPECT_FALSE(store_tuned(none.get(), kScope, {result(3, 1)}, &now, &reasons_));
  EXPECT_TRUE(opdock::testing::has(reasons_, Code::kCacheUnusable)) << text();
}

TEST_F(Stored, SaysWhyItCannotBeWritten) {
  store({result(3, 1)});
  // A folder stands in the place of the entry.
  const std::string path = file();
  std::filesystem::remove(path);
  opdock::testing::make_folder(path);
  opdock::testing::make_folder(path + "/x");
  std::vector<TunedResult> now;
  const std::unique_ptr<Cache> cache = folder_.open();
  ASSERT_NE(cache, nullptr);
  const CacheRequest request = {"tuning",
                                "",
                                {{"plugin", kScope.plugin},
                                 {"version", kScope.version},
                                 {"build", kScope.build},
                                 {"device", kScope.device}}};
  const CacheMaker maker{"", std::filesystem::path(path).filename().string()};
  EXPECT_FALSE(cache->replace_blobs(request, maker, {{"choices", "x"}}, &reasons_));
  EXPECT_TRUE(opdock::testing::has(reasons_, Code::kCacheWrite)) << text();
  EXPECT_TRUE(folder_.temp().empty()) << "nothing is left behind";
}

}  // namespace
}  // namespace opdock
