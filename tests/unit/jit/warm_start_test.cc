// Tests what spares a kernel that is in the cache the search for compilers and the reading of
// headers: the memo of the search, the vocabulary's digests, and the list of a text's includes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "base/files.h"
#include "base/sha256.h"
#include "cache/stamps.h"
#include "cache_folder.h"
#include "jit/includes.h"
#include "jit/nvrtc_memo.h"
#include "jit/vocabulary.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

// A machine whose only NVRTC is that of a folder of compilers.
class NvrtcMemoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_.path("machine/site/nvidia/cuda_nvrtc/lib"));
    fs::create_directories(root_.path("machine/usr"));
    add("libnvrtc.so.12");
    add("libnvrtc-builtins.so.12.9");
    environment_.root = root_.path("machine");
    // Memos are made of files that have settled: Stamps.
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  }

  void add(const std::string& name) const {
    write(root_.path("machine/site/nvidia/cuda_nvrtc/lib/" + name), "no library: " + name);
  }

  std::vector<NvrtcFile> find() {
    searched_.clear();
    memo_ = {};
    return find_nvrtc_files({root_.path("machine/site")}, environment_, cache_.get(), &searched_,
                            &memo_);
  }

  bool was_searched() const { return !searched_.empty(); }

  CacheFolder root_;
  Environment environment_;
  std::unique_ptr<Cache> cache_ = root_.open();
  std::vector<std::string> searched_;
  NvrtcMemo memo_;
};

void expect_equal(const std::vector<NvrtcFile>& found, const std::vector<NvrtcFile>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].path, wanted[i].path);
    EXPECT_EQ(found[i].version.text(), wanted[i].version.text());
    EXPECT_EQ(found[i].id, wanted[i].id);
    EXPECT_EQ(found[i].include, wanted[i].include);
  }
}

TEST_F(NvrtcMemoTest, SparesTheNextSearchUntilTheMachineChanges) {
  const std::vector<NvrtcFile> first = find();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].version.text(), "12.9");
  // There is no cache yet, so that the memo waits for one.
  ASSERT_FALSE(memo_.text.empty());
  find();
  EXPECT_TRUE(was_searched());
  std::vector<Reason> reasons;
  ASSERT_TRUE(cache_->publish_blobs(request(), maker(), blobs(), &reasons)) << text(reasons);
  cache_->remember(memo_.name, memo_.text);

  expect_equal(find(), first);
  EXPECT_FALSE(was_searched());
  // A file where nothing is searched does not count.
  write(root_.path("machine/other"), "");
  expect_equal(find(), first);
  EXPECT_FALSE(was_searched());

  // A second compiler, a header of the toolkit, a file that gets other bytes: each is noticed.
  add("libnvrtc.so.13");
  EXPECT_EQ(find().size(), 2u);
  EXPECT_TRUE(was_searched());
  cache_->remember(memo_.name, "no memo");
  EXPECT_EQ(find().size(), 2u);
  EXPECT_TRUE(was_searched());
}

TEST_F(NvrtcMemoTest, IsWrittenToACacheThatExists) {
  std::vector<Reason> reasons;
  ASSERT_TRUE(cache_->publish_blobs(request(), maker(), blobs(), &reasons)) << text(reasons);
  const std::vector<NvrtcFile> first = find();
  EXPECT_TRUE(was_searched());
  EXPECT_TRUE(memo_.text.empty());
  expect_equal(find(), first);
  EXPECT_FALSE(was_searched());
  // Where else is searched, another memo counts.
  environment_.variables["CUDA_HOME"] = root_.path("machine/usr");
  EXPECT_EQ(find().size(), 1u);
  EXPECT_TRUE(was_searched());
  // The toolkit's headers appear beside the library, in a folder that did not exist.
  environment_.variables.clear();
  fs::create_directories(root_.path("machine/site/nvidia/cuda_nvrtc/include"));
  write(root_.path("machine/site/nvidia/cuda_nvrtc/include/cuda_fp16.h"), "");
  const std::vector<NvrtcFile> second = find();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_FALSE(second[0].include.empty());
}

std::vector<std::string> names_of(const std::vector<Include>& includes) {
  std::vector<std::string> texts;
  for (const Include& one : includes)
    texts.push_back((one.computed ? "?" : one.quoted ? "\"" : "<") + one.name);
  return texts;
}

TEST(Vocabulary, HasTheTreesHeadersWithTheirDigests) {
  std::set<std::string> names;
  for (const SourceText& header : vocabulary()) {
    EXPECT_EQ(read_file(fs::path(DEVICE_FOLDER) / header.name).value_or("no file"),
              header.text.view());
    EXPECT_EQ(header.digest, to_hex(sha256(header.text.view()))) << header.name;
    EXPECT_LT(header.includes().size(), 1000u) << header.name;
    EXPECT_EQ(names_of(includes_of(header.includes())), names_of(includes_of(header.text)))
        << header.name;
    names.insert(header.name);
  }
  for (const auto& entry : fs::directory_iterator(fs::path(DEVICE_FOLDER) / "opdock"))
    EXPECT_TRUE(names.contains("opdock/" + entry.path().filename().string())) << entry.path();
}

TEST(Includes, AreLinesThatBeginWithANumberSign) {
  const std::vector<Include> found = includes_of(
      "#include <a.h>\n# \t include\"b.h\"\n  #include_next <c.h>\n#pragma include <d.h>\n"
      "int include = 1; // #include <e.h>\n#include MACRO\n#include <f\n##include <g.h>\n#");
  EXPECT_EQ(names_of(found),
            (std::vector<std::string>{"<a.h", "\"b.h", "<c.h", "<e.h", "?", "<g.h"}));
}

}  // namespace
}  // namespace opdock::testing
