// Tests folders that cannot be the cache or cannot be written.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

struct Place {
  const char* name;
  // Prepares folder.path("cache"), or puts something else in its place.
  std::function<void(const CacheFolder&)> prepare;
  const char* found;  // expected in the reason
};

class Unusable : public ::testing::TestWithParam<Place> {};

TEST_P(Unusable, IsRefusedAndEverythingMisses) {
  CacheFolder folder;
  GetParam().prepare(folder);
  std::vector<Reason> reasons;
  const auto cache = folder.open(&reasons);
  ASSERT_EQ(reasons.size(), 1u) << text(reasons);
  EXPECT_EQ(reasons[0].code, Code::kCacheUnusable);
  EXPECT_NE(text(reasons).find(GetParam().found), std::string::npos) << text(reasons);
  EXPECT_TRUE(cache->folder().empty());
  reasons.clear();
  EXPECT_TRUE(cache->find(request(), nullptr, &reasons).empty());
  EXPECT_TRUE(reasons.empty()) << text(reasons);
  EXPECT_EQ(cache->lock(request(), maker(), nullptr, &reasons), nullptr);
  EXPECT_TRUE(has(reasons, Code::kCacheUnusable)) << text(reasons);
  EXPECT_EQ(cache->publish_blobs(request(), maker(), blobs(), &reasons), nullptr);
  EXPECT_FALSE(cache->make_folder(&reasons));
  EXPECT_EQ(reasons.size(), 3u) << text(reasons);
  cache->remember_failure(request(), maker(), reasons, "");
  EXPECT_FALSE(cache->failure(request(), maker(), nullptr));
  EXPECT_TRUE(cache->what_changed(request()).empty());
  // A cache in another folder works.
  CacheFolder other;
  publish_unrelated_entry(other);
  expect_cache_usable(other);
}

void make_with_mode(const CacheFolder& folder, mode_t mode) {
  make_folder(folder.path("cache"));
  ASSERT_EQ(chmod(folder.path("cache").c_str(), mode), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Because, Unusable,
    ::testing::Values(
        Place{"OthersCanWriteIt", [](const CacheFolder& f) { make_with_mode(f, 0777); },
              "everybody can write it"},
        Place{"OthersCanWriteItThoughSticky",
              [](const CacheFolder& f) { make_with_mode(f, 01777); }, "everybody can write it"},
        Place{"OthersCanWriteAboveIt",
              [](const CacheFolder& f) { ASSERT_EQ(chmod(f.path().c_str(), 0777), 0); },
              "everybody can write it"},
        Place{"OthersCanMakeIt",
              [](const CacheFolder& f) { ASSERT_EQ(chmod(f.path().c_str(), 01777), 0); },
              "others can create it"},
        Place{"ItIsAFile", [](const CacheFolder& f) { write(f.path("cache"), "x"); }, "no folder"},
        Place{"ItIsALinkToItself",
              [](const CacheFolder& f) { fs::create_symlink("cache", f.path("cache")); },
              "Too many levels of symbolic links"},
        Place{"ItIsALinkInACircle",
              [](const CacheFolder& f) {
                fs::create_symlink("other", f.path("cache"));
                fs::create_symlink("cache", f.path("other"));
              },
              "Too many levels of symbolic links"},
        Place{"ItIsALinkToNowhere",
              [](const CacheFolder& f) { fs::create_symlink("nowhere", f.path("cache")); },
              "leads nowhere"},
        Place{"ItIsALinkToWhatOthersCanWrite",
              [](const CacheFolder& f) {
                make_folder(f.path("open"));
                ASSERT_EQ(chmod(f.path("open").c_str(), 0777), 0);
                make_folder(f.path("open/own"));
                fs::create_symlink("open/own", f.path("cache"));
              },
              "everybody can write it"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Place, OfAnotherUserIsRefused) {
  CacheFolder folder;
  make_folder(folder.path("cache"));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(chown(folder.path("cache").c_str(), 12345, 12345), 0);
  std::vector<Reason> reasons;
  EXPECT_TRUE(folder.open(&reasons)->folder().empty());
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kCacheUnusable);
  EXPECT_NE(text(reasons).find("user 12345"), std::string::npos) << text(reasons);
}

TEST(Place, OfAnotherUserInAStickyFolderIsRefused) {
  CacheFolder folder;
  make_folder(folder.path("shared"));
  make_folder(folder.path("shared/his"));
  make_folder(folder.path("shared/his/own"));
  fs::create_symlink("shared/his/own", folder.path("cache"));
  ASSERT_EQ(chmod(folder.path("shared").c_str(), 01777), 0);
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(chown(folder.path("shared/his").c_str(), 12345, 12345), 0);
  std::vector<Reason> reasons;
  EXPECT_TRUE(folder.open(&reasons)->folder().empty());
  EXPECT_NE(text(reasons).find("user 12345"), std::string::npos) << text(reasons);
}

TEST(Place, BelowAStickyFolderIsUsed) {
  CacheFolder folder;
  make_folder(folder.path("cache"));
  ASSERT_EQ(chmod(folder.path().c_str(), 01777), 0);
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

TEST(Place, BehindAGoodLinkIsUsed) {
  CacheFolder folder;
  make_folder(folder.path("real"));
  fs::create_symlink("real", folder.path("cache"));
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
  EXPECT_TRUE(fs::exists(folder.path("real/v1/kernels")));
}

TEST(Place, IsMadeForItsUserAlone) {
  CacheFolder folder;
  publish_unrelated_entry(folder);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path("cache"))) {
    struct stat status{};
    ASSERT_EQ(lstat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 077, 0u) << entry.path();
  }
}

TEST(Place, InsideItSomethingElseIsAFile) {
  for (const char* name : {"", "/v1", "/v1/tmp", "/v1/kernels", "/v1/locks", "/v1/bad"}) {
    CacheFolder folder;
    publish_unrelated_entry(folder);
    const std::string path = folder.path("cache") + name;
    std::error_code ignored;  // the folder for damaged entries need not exist
    fs::rename(path, folder.path("moved"), ignored);
    write(path, "x");
    std::vector<Reason> reasons;
    {
      const auto cache = folder.open(&reasons);
      const auto lock = cache->lock(request(), maker(), nullptr, &reasons);
      const auto entry = cache->publish_blobs(request(), maker(), blobs(), &reasons);
      EXPECT_TRUE(entry != nullptr || !reasons.empty()) << name;
    }
    fs::remove_all(path);
    if (fs::exists(folder.path("moved"))) fs::rename(folder.path("moved"), path);
    expect_cache_usable(folder);
  }
}

// ---- read-only. Root may write anywhere, so the calls are made to fail.

class ReadOnly : public ::testing::TestWithParam<int> {};

TEST_P(ReadOnly, FindsAndWritesNothing) {
  CacheFolder folder;
  const auto good = folder.open()->publish_blobs(request(), maker(), blobs(), nullptr);
  ASSERT_NE(publish_plugin(folder.open().get(), nullptr), nullptr);
  publish_unrelated_entry(folder);
  make_older(good->path(), 86400);  // old enough that a use would update its time
  arm(folder.path("cache"), {"", 0, Fault::kFail, GetParam()});
  std::vector<Reason> reasons;
  {
    const auto cache = folder.open(&reasons);
    const auto found = cache->find(request(), nullptr, &reasons);
    ASSERT_EQ(found.size(), 1u);
    expect_whole(*found[0]);
    EXPECT_EQ(cache->find(plugin_request(), nullptr, &reasons).size(), 1u);
    EXPECT_TRUE(reasons.empty()) << text(reasons);
    EXPECT_EQ(cache->publish_blobs(request("new"), maker(), blobs(), &reasons), nullptr);
    EXPECT_TRUE(has(reasons, Code::kCacheWrite)) << text(reasons);
    reasons.clear();
    EXPECT_FALSE(cache->make_folder(&reasons));
    EXPECT_TRUE(has(reasons, Code::kCacheWrite)) << text(reasons);
    reasons.clear();
    EXPECT_EQ(cache->lock(request("new"), maker(), nullptr, &reasons), nullptr);
    EXPECT_TRUE(has(reasons, Code::kCacheWrite)) << text(reasons);
    cache->remember_failure(request("new"), maker(), reasons, "log");
    EXPECT_FALSE(cache->failure(request("new"), maker(), nullptr));
  }
  evict_now(folder, 0);
  disarm();
  expect_cache_usable(folder);
}

TEST_P(ReadOnly, DamageIsPassedOver) {
  CacheFolder folder;
  const std::string path =
      folder.open()->publish_blobs(request(), maker(), blobs(), nullptr)->path();
  ASSERT_NE(folder.open()->publish_blobs(request(), maker("fedcba9876543210"), blobs(), nullptr),
            nullptr);
  publish_unrelated_entry(folder);
  write(path, "damaged");
  arm(folder.path("cache"), {"", 0, Fault::kFail, GetParam()});
  std::vector<Reason> reasons;
  const auto found = folder.open()->find(request(), nullptr, &reasons);
  disarm();
  EXPECT_EQ(found.size(), 1u);
  EXPECT_TRUE(has(reasons, Code::kCacheDamaged)) << text(reasons);
  EXPECT_EQ(read(path), "damaged");
  folder.open()->find(request(), nullptr, nullptr);  // moves the damaged entry aside
  ASSERT_NE(folder.open()->publish_blobs(request(), maker(), blobs(), nullptr), nullptr);
  EXPECT_EQ(folder.open()->find(request(), nullptr, nullptr).size(), 2u);
}

// Memos, which only save work, go to the user's own folder if the cache is read-only.
TEST_P(ReadOnly, MemosGoToTheUsersOwnFolder) {
  CacheFolder folder;
  ASSERT_NE(publish_plugin(folder.open().get(), nullptr), nullptr);
  make_older(folder.path("cache"), 60);
  const auto names = [&] { return folder.list("memos"); };
  CacheOptions options;
  options.folder = folder.path("cache");
  const auto reopen = [&] { return Cache::open(options, nullptr); };
  reopen()->remember("before", "x");
  const std::vector<std::string> before = names();
  arm(folder.path("cache"), {"", 0, Fault::kFail, GetParam()});
  reopen()->remember("name", "text");
  EXPECT_EQ(reopen()->recall("name"), std::nullopt) << "nowhere to keep it";
  options.memo_folder = folder.path("own/opdock");
  EXPECT_EQ(reopen()->recall("name"), std::nullopt);
  EXPECT_FALSE(fs::exists(folder.path("own"))) << "made for asking";
  reopen()->remember("name", "text");
  EXPECT_EQ(reopen()->recall("name"), "text");
  EXPECT_EQ(reopen()->recall("before"), std::nullopt) << "one place or the other";
  EXPECT_TRUE(fs::exists(folder.path("own/opdock/CACHEDIR.TAG")));
  EXPECT_EQ(reopen()->find(plugin_request(), nullptr, nullptr).size(), 1u);
  // A folder for memos that others can write is ignored.
  ASSERT_EQ(chmod(folder.path("own/opdock").c_str(), 0777), 0);
  EXPECT_EQ(reopen()->recall("name"), std::nullopt);
  disarm();
  EXPECT_EQ(names(), before);
  // If the cache itself can be written, the memos are there.
  ASSERT_EQ(chmod(folder.path("own/opdock").c_str(), 0700), 0);
  EXPECT_EQ(reopen()->recall("name"), std::nullopt);
  EXPECT_EQ(reopen()->recall("before"), "x");
}

INSTANTIATE_TEST_SUITE_P(Errors, ReadOnly, ::testing::Values(EROFS, EACCES), [](const auto& info) {
  return std::string(info.param == EROFS ? "EROFS" : "EACCES");
});

// ---- the environment

class Environment : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) {
      if (value.empty())
        unsetenv(name);
      else
        setenv(name, value.c_str(), 1);
    }
  }
  static constexpr const char* kNames[] = {"OPDOCK_CACHE_DIR", "OPDOCK_CACHE_MAX_BYTES",
                                           "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<const char*, std::string>> saved_ = [] {
    std::vector<std::pair<const char*, std::string>> all;
    for (const char* name : kNames) {
      all.emplace_back(name, std::getenv(name) == nullptr ? "" : std::getenv(name));
    }
    return all;
  }();
  std::vector<Reason> reasons_;
};

TEST_F(Environment, NamesTheFolder) {
  CacheFolder folder;
  setenv("HOME", folder.path().c_str(), 1);
  EXPECT_EQ(cache_options_from_environment(&reasons_).folder, folder.path(".cache/opdock"));
  setenv("XDG_CACHE_HOME", "/x/cache", 1);
  EXPECT_EQ(cache_options_from_environment(&reasons_).folder, "/x/cache/opdock");
  EXPECT_EQ(cache_options_from_environment(&reasons_).memo_folder, "");
  setenv("OPDOCK_CACHE_DIR", "/y", 1);
  EXPECT_EQ(cache_options_from_environment(&reasons_).folder, "/y");
  EXPECT_EQ(cache_options_from_environment(&reasons_).memo_folder, "/x/cache/opdock");
  setenv("OPDOCK_CACHE_MAX_BYTES", "12345", 1);
  EXPECT_EQ(cache_options_from_environment(&reasons_).max_bytes, 12345u);
  EXPECT_TRUE(reasons_.empty()) << text(reasons_);
}

TEST_F(Environment, WithoutAHomeThereIsNone) {
  EXPECT_TRUE(cache_options_from_environment(&reasons_).folder.empty());
  EXPECT_TRUE(has(reasons_, Code::kCacheUnusable)) << text(reasons_);
}

TEST_F(Environment, AHomeThatIsNotThereIsNotMade) {
  CacheFolder folder;
  setenv("HOME", folder.path("nobody").c_str(), 1);
  EXPECT_TRUE(cache_options_from_environment(&reasons_).folder.empty());
  EXPECT_TRUE(has(reasons_, Code::kCacheUnusable)) << text(reasons_);
  EXPECT_FALSE(fs::exists(folder.path("nobody")));
}

TEST_F(Environment, WrongValuesAreNamed) {
  for (const char* value : {"x", "-1", "1k", "99999999999999999999999", "1 "}) {
    reasons_.clear();
    setenv("OPDOCK_CACHE_DIR", "/y", 1);
    setenv("OPDOCK_CACHE_MAX_BYTES", value, 1);
    EXPECT_EQ(cache_options_from_environment(&reasons_).max_bytes, CacheOptions().max_bytes);
    ASSERT_TRUE(has(reasons_, Code::kCacheSetting)) << value;
    EXPECT_NE(text(reasons_).find("OPDOCK_CACHE_MAX_BYTES"), std::string::npos);
  }
  reasons_.clear();
  unsetenv("OPDOCK_CACHE_MAX_BYTES");
  setenv("OPDOCK_CACHE_DIR", "relative", 1);
  EXPECT_TRUE(cache_options_from_environment(&reasons_).folder.empty());
  EXPECT_TRUE(has(reasons_, Code::kCacheSetting)) << text(reasons_);
}

}  // namespace
}  // namespace opdock::testing
