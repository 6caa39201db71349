// Tests the build request of a source plugin and the memo of its files that a cache keeps.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/sha256.h"
#include "build_fixture.h"
#include "cache/stamps.h"
#include "cache_folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMinute = 60'000'000'000;

class Remembered : public BuildFixture {
 protected:
  void SetUp() override {
    store_ = folder_.open();
    publish_plugin(store_.get(), nullptr);  // creates the cache
    write("source/noop.cc", "#include \"deep/er.h\"\n#include \"deep/est.h\"\n#include \"link\"\n");
    write("source/deep/er.h", "int deep;\n");
    good_ = fields();
  }

  std::vector<CacheField> fields() {
    return build_request(manifest(), options, store_.get())->fields;
  }
  std::vector<CacheField> fields_as_read() { return build_request(manifest(), options)->fields; }

  // Stores a memo of files that the folder does not contain, sealed as if the folder were read a
  // minute from now. A request with these files proves that the memo was used and the folder was
  // not read.
  void remember_others() {
    Stamps stamps(source(), Stamps::now_ns() + kMinute);
    stamps.add("");
    stamps.add("deep");
    for (fs::recursive_directory_iterator at(source()), end; at != end; ++at) {
      if (at->is_regular_file()) stamps.add(at->path().lexically_relative(source()));
    }
    const std::optional<std::string> memo = stamps.to_memo(pack_texts({"other.cc", "its digest"}));
    ASSERT_TRUE(memo);
    store_->remember("sources of " + source(), *memo);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(30));  // longer than a tick of the file system's clock
  }

  CacheFolder folder_;
  std::unique_ptr<Cache> store_;
  std::vector<CacheField> good_;
};

TEST_F(Remembered, IsWhatIsReadWithoutACache) {
  EXPECT_EQ(good_, fields_as_read());
}

TEST_F(Remembered, WhatLooksAsItDidIsNotRead) {
  remember_others();
  const std::vector<CacheField> found = fields();
  EXPECT_NE(found, good_);
  EXPECT_NE(std::find(found.begin(), found.end(), CacheField{"source other.cc", "its digest"}),
            found.end());
}

TEST_F(Remembered, IsWrittenOnceTheFilesHaveSettled) {
  EXPECT_FALSE(store_->recall("sources of " + source())) << "files that were just written";
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(fields(), good_);
  EXPECT_TRUE(store_->recall("sources of " + source()));
  EXPECT_EQ(fields(), good_);
}

TEST_F(Remembered, AnAddedFileIsSeen) {
  remember_others();
  write("source/deep/est.h", "int deepest;\n");
  EXPECT_EQ(fields(), fields_as_read());
  EXPECT_NE(fields(), good_);
}

// The new folder is visible as a change of its parent folder.
TEST_F(Remembered, AnAddedFileInAnAddedFolderIsSeen) {
  write("source/noop.cc", "#include \"new/er/header.h\"\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  const std::vector<CacheField> without = fields();
  ASSERT_TRUE(store_->recall("sources of " + source()));
  write("source/new/other.h", "");
  EXPECT_EQ(fields(), without);
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(fields(), without);
  write("source/new/er/header.h", "");
  EXPECT_EQ(fields(), fields_as_read());
  EXPECT_NE(fields(), without);
}

TEST_F(Remembered, AChangeWithItsOldTimesIsSeen) {
  remember_others();
  const std::string path = source() + "/deep/er.h";
  struct stat before{};
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  write("source/deep/er.h", "int Deep;\n");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(fields(), fields_as_read());
  EXPECT_NE(fields(), good_);
}

TEST_F(Remembered, ANewTimeMeansReadingAndTheSameRequest) {
  remember_others();
  ASSERT_EQ(utimensat(AT_FDCWD, (source() + "/noop.cc").c_str(), nullptr, 0), 0);
  EXPECT_EQ(fields(), good_);
}

TEST_F(Remembered, AMovedFolderIsTheSameRequest) {
  remember_others();
  fs::rename(source(), top + "/elsewhere");
  EXPECT_EQ(build_request(manifest_at(top + "/elsewhere"), options, store_.get())->fields, good_);
  fs::copy(top + "/elsewhere", source(), fs::copy_options::recursive);
  EXPECT_EQ(fields(), good_);
}

TEST_F(Remembered, ALinkToAFolderThatBecomesAFileIsSeen) {
  fs::create_directories(top + "/target");
  fs::create_symlink(top + "/target", source() + "/link");
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(fields(), good_);  // a link to a folder is ignored
  ASSERT_TRUE(store_->recall("sources of " + source()));
  fs::remove(top + "/target");
  write("target", "int linked;\n");
  EXPECT_EQ(fields(), fields_as_read());
  EXPECT_NE(fields(), good_);
}

}  // namespace
}  // namespace opdock::testing
