// Tests publishing, finding, locking and remembering, without faults.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "cache_folder.h"

namespace opdock::testing {
namespace {

TEST(Store, PublishesAndFinds) {
  CacheFolder folder;
  const auto cache = folder.open();
  EXPECT_TRUE(cache->find(request(), nullptr, nullptr).empty());
  std::vector<Reason> reasons;
  const auto lock = cache->lock(request(), maker(), nullptr, &reasons);
  ASSERT_NE(lock, nullptr);
  const auto made = cache->publish_blobs(request(), maker(), blobs(), &reasons);
  ASSERT_NE(made, nullptr) << text(reasons);
  EXPECT_TRUE(reasons.empty()) << text(reasons);
  const auto found = cache->find(request(), nullptr, &reasons);
  ASSERT_EQ(found.size(), 1u) << text(reasons);
  expect_whole(*found[0]);
}

TEST(Store, PublishesAFolder) {
  CacheFolder folder;
  const auto cache = folder.open();
  std::vector<Reason> reasons;
  const auto made = publish_plugin(cache.get(), &reasons);
  ASSERT_NE(made, nullptr) << text(reasons);
  EXPECT_EQ(read(made->folder() + "/axpy.so"), kLibrary);
  EXPECT_EQ(read(made->folder() + "/log/build.log"), "done\n");
  const auto found = cache->find(plugin_request(), nullptr, &reasons);
  ASSERT_EQ(found.size(), 1u) << text(reasons);
  EXPECT_EQ(found[0]->folder(), made->folder());
  EXPECT_TRUE(folder.temp().empty());
}

TEST(Store, ThePreferredMakersVariantComesFirstThenTheNewest) {
  CacheFolder folder;
  const auto cache = folder.open();
  const CacheMaker other = maker("fedcba9876543210"), third = maker("00000000ffffffff");
  for (const CacheMaker& by : {maker(), other, third}) {
    ASSERT_NE(cache->publish_blobs(request(), by, blobs(), nullptr), nullptr);
  }
  const auto found = cache->find(request(), &other, nullptr);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]->maker().id, other.id);
  EXPECT_GE(found[1]->created(), found[2]->created());
  // A machine without a compiler accepts any variant.
  const CacheMaker none = maker("1111111111111111");
  EXPECT_EQ(cache->find(request(), &none, nullptr).size(), 3u);
}

TEST(Store, WhatIsPublishedTwiceIsThereOnce) {
  CacheFolder folder;
  const auto cache = folder.open();
  const auto first = cache->publish_blobs(request(), maker(), blobs(), nullptr);
  const auto second = cache->publish_blobs(request(), maker(), {{"image", "other"}}, nullptr);
  ASSERT_NE(second, nullptr);
  expect_whole(*second);
  EXPECT_EQ(second->path(), first->path());
  EXPECT_TRUE(folder.temp().empty());
}

TEST(Store, AnEntryOutlivesItsCacheAndItsFile) {
  CacheFolder folder;
  const auto entry = folder.open()->publish_blobs(request(), maker(), blobs(), nullptr);
  write(entry->path(), "");
  std::filesystem::remove_all(folder.path("cache"));
  expect_whole(*entry);
}

TEST(Store, SetsAsideWhatDoesNotLoad) {
  CacheFolder folder;
  const auto cache = folder.open();
  for (int round = 0; round < 2; ++round) {
    const auto entry = cache->publish_blobs(request(), maker(), blobs(), nullptr);
    const auto plugin = publish_plugin(cache.get(), nullptr);
    cache->quarantine(*entry, make_reason(Code::kLoadFailed, "rubbish", "an image"));
    cache->quarantine(*plugin, make_reason(Code::kLoadFailed, "rubbish", "a library"));
    EXPECT_TRUE(cache->find(request(), nullptr, nullptr).empty());
    EXPECT_TRUE(cache->find(plugin_request(), nullptr, nullptr).empty());
    // An entry that somebody else has published since is not the one that failed.
    ASSERT_NE(cache->publish_blobs(request(), maker(), blobs(), nullptr), nullptr);
    cache->quarantine(*entry, make_reason(Code::kLoadFailed, "rubbish", "an image"));
    const auto found = cache->find(request(), nullptr, nullptr);
    ASSERT_EQ(found.size(), 1u);
    cache->quarantine(*found[0], make_reason(Code::kLoadFailed, "rubbish", "an image"));
  }
  EXPECT_EQ(folder.list("bad").size(), 12u);
}

TEST(Store, RefusesToPublishWhatIsNotInTheFolder) {
  CacheFolder folder;
  const auto cache = folder.open();
  for (const char* name : {"../x", "/etc/passwd", "", "missing", "entry", "link", "folder"}) {
    const auto made = cache->make_folder(nullptr);
    ASSERT_TRUE(made);
    std::filesystem::create_symlink("/etc/passwd", *made + "/link");
    make_folder(*made + "/folder");
    std::vector<Reason> reasons;
    EXPECT_EQ(cache->publish_folder(plugin_request(), maker(), *made, {name}, &reasons), nullptr);
    EXPECT_TRUE(has(reasons, Code::kCacheWrite)) << name << text(reasons);
    cache->discard_folder(*made);
  }
  std::vector<Reason> reasons;
  EXPECT_EQ(cache->publish_folder(plugin_request(), maker(), folder.path(), {"x"}, &reasons),
            nullptr);
  EXPECT_TRUE(std::filesystem::exists(folder.path()));
  EXPECT_TRUE(folder.temp().empty());
}

// A file copied from the cache keeps the permissions that the compiler's own file had.
TEST(Store, KeepsWhoMayReadAndExecute) {
  CacheFolder folder;
  const auto cache = folder.open();
  const auto made = cache->make_folder(nullptr);
  write(*made + "/axpy.so", kLibrary);
  write(*made + "/build.log", "log");
  write(*made + "/own.so", kLibrary);
  write(*made + "/open.so", kLibrary);
  std::filesystem::permissions(*made + "/axpy.so", std::filesystem::perms(0755));
  std::filesystem::permissions(*made + "/build.log", std::filesystem::perms(0644));
  std::filesystem::permissions(*made + "/own.so", std::filesystem::perms(0700));
  std::filesystem::permissions(*made + "/open.so", std::filesystem::perms(0777));
  const auto entry = cache->publish_folder(plugin_request(), maker(), *made,
                                           {"axpy.so", "build.log", "own.so", "open.so"}, nullptr);
  ASSERT_NE(entry, nullptr);
  const auto mode = [&](const char* name) {
    return static_cast<int>(std::filesystem::status(entry->folder() + "/" + name).permissions());
  };
  EXPECT_EQ(mode("axpy.so"), 0755);
  EXPECT_EQ(mode("build.log"), 0644);
  EXPECT_EQ(mode("own.so"), 0700);
  EXPECT_EQ(mode("open.so"), 0755);
}

// ---- failures

TEST(Failure, IsRememberedUntilItIsForgottenOrMade) {
  CacheFolder folder;
  const auto cache = folder.open();
  const std::vector<Reason> why = {make_reason(Code::kCacheLock, "a \"quoted\"\nline", "x"),
                                   {Code::kElfType, "f", "w", "own advice"}};
  std::string log = "unchanged";
  EXPECT_FALSE(cache->failure(request(), maker(), &log));
  EXPECT_EQ(log, "");
  cache->remember_failure(request(), maker(), why, "the log\n");
  const auto known = folder.open()->failure(request(), maker(), &log);
  ASSERT_TRUE(known);
  ASSERT_EQ(known->size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(to_text((*known)[i]), to_text(why[i]));
  EXPECT_EQ(read(log), "the log\n");
  // Another compiler, or another input, may succeed.
  EXPECT_FALSE(cache->failure(request(), maker("fedcba9876543210"), nullptr));
  EXPECT_FALSE(cache->failure(request("other"), maker(), nullptr));
  cache->forget_failure(request());
  EXPECT_FALSE(cache->failure(request(), maker(), nullptr));
  cache->remember_failure(request(), maker(), why, "");
  ASSERT_NE(cache->publish_blobs(request(), maker(), blobs(), nullptr), nullptr);
  EXPECT_FALSE(cache->failure(request(), maker(), &log));
}

TEST(Failure, ADamagedRecordCountsForNothing) {
  CacheFolder folder;
  const auto cache = folder.open();
  cache->remember_failure(request(), maker(), {make_reason(Code::kCacheLock, "x", "y")}, "log");
  const std::string key = request().key();
  const std::string path =
      folder.path("cache/v1/failures/" + key.substr(0, 2) + "/" + key + "/" + maker().id);
  const std::string good = read(path);
  ASSERT_FALSE(good.empty());
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    write(path, bytes);
    ASSERT_FALSE(cache->failure(request(), maker(), nullptr)) << at;
  }
  write(path, good);
  EXPECT_TRUE(cache->failure(request(), maker(), nullptr));
}

// ---- what_changed

CacheRequest with(std::vector<CacheField> fields) {
  return {"plugin", "axpy", std::move(fields)};
}

std::vector<std::string> changes(const std::vector<CacheField>& before,
                                 const std::vector<CacheField>& now) {
  CacheFolder folder;
  const auto cache = folder.open();
  EXPECT_NE(cache->publish_blobs(with(before), maker(), blobs(), nullptr), nullptr);
  return cache->what_changed(with(now));
}

TEST(Changes, AreTold) {
  using Texts = std::vector<std::string>;
  const std::string a(64, 'a'), b(64, 'b');
  EXPECT_EQ(changes({{"source axpy.cc", a}}, {{"source axpy.cc", b}}),
            Texts{"source axpy.cc changed"});
  EXPECT_EQ(changes({{"option 3", "-O2"}}, {{"option 3", "-O3"}}),
            Texts{"option 3: found -O3, was -O2"});
  EXPECT_EQ(changes({{"archs", ""}}, {{"archs", "default"}}),
            Texts{"archs: found default, was nothing"});
  EXPECT_EQ(changes({}, {{"header x.h", a}}), Texts{"header x.h was added"});
  EXPECT_EQ(changes({{"header x.h", a}}, {}), Texts{"header x.h was removed"});
  EXPECT_EQ(changes({{"a", "1"}, {"b", "2"}}, {{"b", "2"}, {"a", "1"}}),
            Texts{"the order of the inputs changed"});
  EXPECT_EQ(changes({{"a", "1"}}, {{"a", "1"}}), Texts{});  // the same request
}

TEST(Changes, AreThoseSinceTheLastOtherOne) {
  CacheFolder folder;
  const auto cache = folder.open();
  for (const char* value : {"1", "2", "3", "4", "5", "6"}) {
    ASSERT_NE(cache->publish_blobs(with({{"x", value}}), maker(), blobs(), nullptr), nullptr);
  }
  EXPECT_EQ(cache->what_changed(with({{"x", "7"}})), std::vector<std::string>{"x: found 7, was 6"});
  EXPECT_EQ(cache->what_changed(with({{"x", "6"}})), std::vector<std::string>{"x: found 6, was 5"});
  CacheRequest other = with({{"x", "7"}});
  other.subject = "softmax";
  EXPECT_TRUE(cache->what_changed(other).empty());
}

}  // namespace
}  // namespace opdock::testing
