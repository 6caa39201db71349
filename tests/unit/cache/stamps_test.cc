// Tests stamps of files that were read, and the texts (memos) that a cache keeps with them.
// SPDX-License-Identifier: Apache-2.0
#include "cache/stamps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cache_folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMinute = 60'000'000'000;

// Waits longer than a tick of the file system's clock, so that later changes get other times.
void pass_a_tick() {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
}

class StampsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder() + "/inner");
    write(folder() + "/axpy.cc", "a * x + y");
    write(folder() + "/inner/axpy.h", "float a;");
  }

  std::string folder() const { return root_.path("plugin"); }

  // Seals as if the files were read a minute later, when they have settled.
  std::optional<std::string> to_memo(int64_t later = kMinute) const {
    Stamps stamps(folder(), Stamps::now_ns() + later);
    for (const char* name : {"", "axpy.cc", "inner", "inner/axpy.h"}) stamps.add(name);
    return stamps.to_memo("digest");
  }

  bool still_holds(const std::string& text) const {
    return Stamps::from_memo(folder(), text) == "digest";
  }

  CacheFolder root_;
};

TEST_F(StampsTest, HoldWhileNothingChanges) {
  const std::optional<std::string> text = to_memo();
  ASSERT_TRUE(text);
  pass_a_tick();
  EXPECT_TRUE(still_holds(*text));
  read(folder() + "/axpy.cc");
  EXPECT_TRUE(still_holds(*text));
}

TEST_F(StampsTest, WhatIsAbsentIsNoticedWhenItAppears) {
  const auto memo = [&] {
    Stamps stamps(folder(), Stamps::now_ns() + kMinute);
    stamps.add_absent("axpy.cu");
    stamps.add_absent("none/axpy.cu");
    return stamps.to_memo("digest");
  };
  const std::optional<std::string> text = memo();
  ASSERT_TRUE(text);
  EXPECT_TRUE(still_holds(*text));
  // Another file beside it does not count.
  write(folder() + "/other.cc", "");
  EXPECT_TRUE(still_holds(*text));
  fs::create_directories(folder() + "/none");
  EXPECT_TRUE(still_holds(*text));
  write(folder() + "/none/axpy.cu", "");
  EXPECT_FALSE(still_holds(*text));
  EXPECT_FALSE(memo());
  fs::remove_all(folder() + "/none");
  EXPECT_TRUE(still_holds(*text));
}

TEST_F(StampsTest, AnAddedFileIsNoticed) {
  const std::optional<std::string> text = to_memo();
  pass_a_tick();
  write(folder() + "/inner/more.h", "int b;");
  EXPECT_FALSE(still_holds(*text));
}

TEST_F(StampsTest, AMissingFileIsNoticed) {
  const std::optional<std::string> text = to_memo();
  pass_a_tick();
  fs::remove(folder() + "/inner/axpy.h");
  EXPECT_FALSE(still_holds(*text));
}

TEST_F(StampsTest, AChangeThatRestoresSizeAndModificationTimeIsNoticed) {
  const std::optional<std::string> text = to_memo();
  struct stat before{}, after{};
  const std::string path = folder() + "/axpy.cc";
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  pass_a_tick();
  write(path, "a * x - y");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  ASSERT_EQ(stat(path.c_str(), &after), 0);
  ASSERT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  ASSERT_EQ(after.st_size, before.st_size);
  EXPECT_FALSE(still_holds(*text));
}

TEST_F(StampsTest, AFileReplacedByAnotherIsNoticed) {
  write(folder() + "/other.cc", "a * x - y");
  const std::optional<std::string> text = to_memo();
  pass_a_tick();
  fs::rename(folder() + "/other.cc", folder() + "/axpy.cc");
  EXPECT_FALSE(still_holds(*text));
}

TEST_F(StampsTest, WhatALinkLeadsToCounts) {
  write(root_.path("elsewhere.h"), "int b;");
  fs::create_symlink(root_.path("elsewhere.h"), folder() + "/link.h");
  Stamps stamps(folder(), Stamps::now_ns() + kMinute);
  stamps.add("link.h");
  const std::optional<std::string> text = stamps.to_memo("digest");
  ASSERT_TRUE(text);
  EXPECT_TRUE(still_holds(*text));
  pass_a_tick();
  write(root_.path("elsewhere.h"), "int c;");
  EXPECT_FALSE(still_holds(*text));
}

TEST_F(StampsTest, DoNotHoldForACopyOrAnotherFolderInThePlace) {
  const std::optional<std::string> text = to_memo();
  fs::copy(folder(), root_.path("copy"), fs::copy_options::recursive);
  EXPECT_FALSE(Stamps::from_memo(root_.path("copy"), *text));
  fs::rename(folder(), root_.path("moved"));
  EXPECT_FALSE(still_holds(*text));
  fs::rename(root_.path("copy"), folder());
  EXPECT_FALSE(still_holds(*text));
}

TEST_F(StampsTest, AFileThatChangedJustBeforeOrAfterItWasReadIsNotVouchedFor) {
  EXPECT_FALSE(to_memo(0));
  EXPECT_FALSE(to_memo(1'000'000'000));
  EXPECT_FALSE(to_memo(-kMinute));  // the file's time is in the future
  EXPECT_TRUE(to_memo(3'000'000'000));
}

TEST_F(StampsTest, AFileThatChangesWhileItIsReadIsNotVouchedFor) {
  Stamps stamps(folder(), Stamps::now_ns() + kMinute);
  stamps.add("axpy.cc");
  pass_a_tick();
  write(folder() + "/axpy.cc", "a * x - y");
  EXPECT_FALSE(stamps.to_memo("digest"));
}

TEST_F(StampsTest, WhatCannotBeReadIsNotVouchedFor) {
  Stamps missing(folder(), Stamps::now_ns() + kMinute);
  missing.add("axpy.cc");
  missing.add("missing.h");
  EXPECT_FALSE(missing.to_memo("digest"));
  Stamps invalidated(folder(), Stamps::now_ns() + kMinute);
  invalidated.add("axpy.cc");
  invalidated.invalidate();
  EXPECT_FALSE(invalidated.to_memo("digest"));
  EXPECT_FALSE(Stamps(folder(), Stamps::now_ns() + kMinute).to_memo("digest"));
}

TEST_F(StampsTest, OfAKindOnlyTheKindCounts) {
  Stamps stamps(folder(), Stamps::now_ns() + kMinute);
  stamps.add_kind("inner");
  const std::optional<std::string> text = stamps.to_memo("digest");
  ASSERT_TRUE(text);
  pass_a_tick();
  write(folder() + "/inner/more.h", "int b;");
  EXPECT_TRUE(still_holds(*text));
  fs::remove_all(folder() + "/inner");
  write(folder() + "/inner", "a file now");
  EXPECT_FALSE(still_holds(*text));
}

TEST_F(StampsTest, ATextThatIsNoneVouchesForNothing) {
  const std::string text = *to_memo();
  int held = 0;
  for (size_t size = 0; size < text.size(); ++size) held += still_holds(text.substr(0, size));
  EXPECT_EQ(held, 3);  // cut after the first, second and third of its four stamps
  EXPECT_FALSE(unpack_texts("short"));
  EXPECT_FALSE(unpack_texts(std::string(8, '\xff')));
  const std::vector<std::string> texts = {"", std::string("a\0b\n", 4), "\xff"};
  EXPECT_EQ(unpack_texts(pack_texts(texts)), texts);
}

// ---- memos in a cache

class MemoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ = root_.open();
    ASSERT_NE(cache_->publish_blobs(request(), maker(), blobs(), nullptr), nullptr);
  }

  std::vector<std::string> files(const std::string& below) const {
    std::vector<std::string> paths;
    std::error_code error;
    for (fs::recursive_directory_iterator at(root_.path("cache/v1/" + below), error), end;
         !error && at != end; at.increment(error)) {
      if (at->is_regular_file()) paths.push_back(at->path());
    }
    return paths;
  }

  CacheFolder root_;
  std::unique_ptr<Cache> cache_;
};

TEST_F(MemoTest, IsFoundUnderItsNameAlone) {
  EXPECT_FALSE(cache_->recall("sources of /a"));
  cache_->remember("sources of /a", "text");
  EXPECT_EQ(cache_->recall("sources of /a"), "text");
  EXPECT_EQ(root_.open()->recall("sources of /a"), "text");
  EXPECT_FALSE(cache_->recall("sources of /b"));
  cache_->remember("sources of /a", "newer");
  EXPECT_EQ(cache_->recall("sources of /a"), "newer");
  EXPECT_EQ(files("memos").size(), 1u);
  EXPECT_TRUE(root_.temp().empty());
}

TEST_F(MemoTest, OneByteThatDiffersAndItIsIgnored) {
  cache_->remember("name", "the text");
  const std::string path = files("memos").front(), good = read(path);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write(path, bad);
    EXPECT_FALSE(cache_->recall("name")) << at;
    write(path, good.substr(0, at));
    EXPECT_FALSE(cache_->recall("name")) << at;
  }
  write(path, good);
  EXPECT_TRUE(cache_->recall("name"));
}

TEST_F(MemoTest, AnotherNamesFileIsIgnored) {
  cache_->remember("one", "text");
  const std::string one = files("memos").front(), bytes = read(one);
  fs::remove(one);
  cache_->remember("two", "text of two");
  write(files("memos").front(), bytes);
  EXPECT_FALSE(cache_->recall("two"));
}

TEST_F(MemoTest, MakesNoCacheWhereThereIsNone) {
  CacheFolder none;
  none.open()->remember("name", "text");
  EXPECT_FALSE(fs::exists(none.path("cache")));
}

// A published file that has settled is not read for a second look; a changed one is.
TEST_F(MemoTest, FilesThatWereGoodAreReadAgainOnceTheyChanged) {
  const std::string so = publish_plugin(cache_.get(), nullptr)->folder() + "/axpy.so";
  EXPECT_EQ(cache_->find(plugin_request(), nullptr, nullptr).size(), 1u);
  EXPECT_TRUE(files("memos").empty()) << "a file that was just written was vouched for";
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(cache_->find(plugin_request(), nullptr, nullptr).size(), 1u);
  ASSERT_EQ(files("memos").size(), 1u);

  struct stat before{};
  ASSERT_EQ(stat(so.c_str(), &before), 0);
  std::string bytes = read(so);
  bytes[bytes.size() / 2] ^= 1;
  write(so, bytes);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, so.c_str(), times, 0), 0);
  std::vector<Reason> reasons;
  EXPECT_TRUE(cache_->find(plugin_request(), nullptr, &reasons).empty());
  EXPECT_TRUE(has(reasons, Code::kCacheDamaged)) << text(reasons);
}

TEST_F(MemoTest, AnEntryIsFoundWhateverItsMemoSays) {
  const std::string folder = publish_plugin(cache_.get(), nullptr)->folder();
  Stamps stamps(folder, Stamps::now_ns() + kMinute);
  stamps.add("axpy.so");
  cache_->remember("files of " + folder, *stamps.to_memo("another entry's digest"));
  write(folder + "/axpy.so", "damage");
  EXPECT_TRUE(cache_->find(plugin_request(), nullptr, nullptr).empty());
}

}  // namespace
}  // namespace opdock::testing
