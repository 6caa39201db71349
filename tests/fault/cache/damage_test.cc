// Tests changes of published bytes: each single byte, and each length. Nothing damaged is ever
// returned.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cache/entry_format.h"
#include "support.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<Reason> reasons;
    path_ = folder_.open()->publish_blobs(request(), maker(), blobs(), &reasons)->path();
    plugin_ = publish_plugin(folder_.open().get(), &reasons)->folder();
    publish_unrelated_entry(folder_);
    good_ = read(path_);
    ASSERT_TRUE(reasons.empty()) << text(reasons);
  }

  // `path` holds something else now. Expects that it is not found and is moved aside with a reason,
  // and that the next search reports nothing.
  void expect_quarantine(const CacheRequest& asked, const std::string& what) {
    fs::remove_all(folder_.path("cache/v1/bad"));
    std::vector<Reason> reasons;
    ASSERT_TRUE(folder_.open()->find(asked, nullptr, &reasons).empty()) << what;
    ASSERT_EQ(reasons.size(), 1u) << what << text(reasons);
    ASSERT_EQ(reasons[0].code, Code::kCacheDamaged) << what << text(reasons);
    ASSERT_EQ(folder_.list("bad").size(), 2u) << what;  // the entry and its reason
    reasons.clear();
    ASSERT_TRUE(folder_.open()->find(asked, nullptr, &reasons).empty()) << what;
    ASSERT_TRUE(reasons.empty()) << what << text(reasons);
  }

  void expect_right_afterwards() { expect_cache_usable(folder_); }

  CacheFolder folder_;
  std::string path_, plugin_, good_;
};

TEST_F(Damage, EveryByteOfAnEntryFlipped) {
  for (size_t at = 0; at < good_.size(); ++at) {
    std::string bytes = good_;
    bytes[at] = static_cast<char>(bytes[at] ^ 0xff);
    write(path_, bytes);
    expect_quarantine(request(), "byte " + std::to_string(at));
    if (HasFatalFailure()) return;
  }
  expect_right_afterwards();
}

TEST_F(Damage, EveryBitOfTheHeadFlipped) {
  for (size_t bit = 0; bit < cache::kEntryHeadBytes * 8; ++bit) {
    std::string bytes = good_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    write(path_, bytes);
    expect_quarantine(request(), "bit " + std::to_string(bit));
    if (HasFatalFailure()) return;
  }
  expect_right_afterwards();
}

TEST_F(Damage, EveryLengthOfAnEntry) {
  for (size_t size = 0; size < good_.size(); ++size) {
    write(path_, good_.substr(0, size));
    expect_quarantine(request(), "length " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
  expect_right_afterwards();
}

TEST_F(Damage, BytesBehindAnEntry) {
  write(path_, good_ + std::string(1, '\0'));
  expect_quarantine(request(), "one more");
  expect_right_afterwards();
}

TEST_F(Damage, EveryByteOfAPluginsFilesFlipped) {
  for (const char* name : {"entry", "axpy.so", "log/build.log"}) {
    const std::string path = plugin_ + "/" + name, good = read(path);
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      const std::string copy = folder_.path("copy");
      fs::remove_all(copy);
      fs::copy(plugin_, copy, fs::copy_options::recursive);
      write(path, bytes);
      expect_quarantine(plugin_request(), name + std::to_string(at));
      if (HasFatalFailure()) return;
      fs::rename(copy, plugin_);
    }
  }
  expect_right_afterwards();
}

TEST_F(Damage, EveryLengthOfAPlugin) {
  const std::string path = plugin_ + "/axpy.so", good = read(path);
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string copy = folder_.path("copy");
    fs::remove_all(copy);
    fs::copy(plugin_, copy, fs::copy_options::recursive);
    write(path, good.substr(0, size));
    expect_quarantine(plugin_request(), "length " + std::to_string(size));
    if (HasFatalFailure()) return;
    fs::rename(copy, plugin_);
  }
  expect_right_afterwards();
}

// Something that stands in the place of an entry.
struct Instead {
  const char* name;
  std::function<void(const std::string& path, const std::string& folder)> put;
};

class InsteadTest : public Damage, public ::testing::WithParamInterface<Instead> {};

TEST_P(InsteadTest, OfTheEntry) {
  unlink(path_.c_str());
  GetParam().put(path_, folder_.path());
  expect_quarantine(request(), GetParam().name);
  expect_right_afterwards();
}

TEST_P(InsteadTest, OfThePluginsEntry) {
  unlink((plugin_ + "/entry").c_str());
  GetParam().put(plugin_ + "/entry", folder_.path());
  expect_quarantine(plugin_request(), GetParam().name);
  expect_right_afterwards();
}

TEST_P(InsteadTest, OfTheLibrary) {
  unlink((plugin_ + "/axpy.so").c_str());
  GetParam().put(plugin_ + "/axpy.so", folder_.path());
  expect_quarantine(plugin_request(), GetParam().name);
  expect_right_afterwards();
}

// A valid entry of another request, copied by hand.
TEST_F(Damage, EntryOfAnotherRequest) {
  const auto other = folder_.open()->publish_blobs(request("other"), maker(), blobs(), nullptr);
  write(path_, read(other->path()));
  expect_quarantine(request(), "another request's");
  expect_right_afterwards();
}

TEST_F(Damage, EntryOfAnotherMaker) {
  const std::string other =
      folder_.open()->publish_blobs(request(), maker("fedcba9876543210"), blobs(), nullptr)->path();
  write(path_, read(other));
  unlink(other.c_str());
  expect_quarantine(request(), "another maker's");
  expect_right_afterwards();
}

INSTANTIATE_TEST_SUITE_P(
    Something, InsteadTest,
    ::testing::Values(
        Instead{"AFifo", [](const auto& path, const auto&) { mkfifo(path.c_str(), 0600); }},
        Instead{"AFolder", [](const auto& path, const auto&) { make_folder(path); }},
        Instead{"AnEmptyFile", [](const auto& path, const auto&) { write(path, ""); }},
        Instead{"ALinkToNowhere",
                [](const auto& path, const auto& folder) {
                  fs::create_symlink(folder + "/nowhere", path);
                }},
        Instead{"ALinkToItself",
                [](const auto& path, const auto&) { fs::create_symlink(path, path); }},
        Instead{"ALinkToADevice",
                [](const auto& path, const auto&) { fs::create_symlink("/dev/zero", path); }},
        Instead{"AHugeSparseFile",
                [](const auto& path, const auto&) {
                  write(path, "x");
                  ASSERT_EQ(truncate(path.c_str(), 1ll << 40), 0);
                }}),
    [](const auto& info) { return std::string(info.param.name); });

// A complete entry of a later format is neither returned, nor moved, nor overwritten.
TEST_F(Damage, NewerFormatIsLeftAlone) {
  const std::string bytes = newer_format(good_);
  write(path_, bytes);
  std::vector<Reason> reasons;
  const auto cache = folder_.open();
  EXPECT_TRUE(cache->find(request(), nullptr, &reasons).empty());
  EXPECT_TRUE(has(reasons, Code::kCacheNewer)) << text(reasons);
  reasons.clear();
  EXPECT_EQ(cache->publish_blobs(request(), maker(), blobs(), &reasons), nullptr);
  EXPECT_TRUE(has(reasons, Code::kCacheNewer)) << text(reasons);
  make_older(path_, 1 << 30);
  evict_now(folder_, 0);
  EXPECT_EQ(read(path_), bytes);
  // Another compiler's variant of the same request still works.
  reasons.clear();
  const CacheMaker other = maker("fedcba9876543210");
  EXPECT_NE(cache->publish_blobs(request(), other, blobs(), &reasons), nullptr);
  EXPECT_EQ(cache->find(request(), nullptr, &reasons).size(), 1u);
  EXPECT_EQ(read(path_), bytes);
}

}  // namespace
}  // namespace opdock::testing
