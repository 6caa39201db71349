// Tests sources and compilers that change during a build, remembered failures, many builders at
// once, names that need quoting, and untrusted folders.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "build_fixture.h"

namespace opdock::testing {
namespace {

constexpr char kGoodNinja[] = "echo build >> $TOP/builds; mkdir -p \"$2/plugins\"; cp ";

class Change : public BuildFixture {
 protected:
  std::string good_ninja() const { return kGoodNinja + good_plugin() + " \"$2/plugins/noop.so\""; }
};

// Changes the source after the builder has hashed it and before the builder copies it.
class MeddlingCache : public PlainCache {
 public:
  MeddlingCache(const std::string& folder, std::function<void()> meddle)
      : PlainCache(folder), meddle_(std::move(meddle)) {}
  std::optional<std::string> make_folder(std::vector<Reason>* reasons) override {
    meddle_();
    return PlainCache::make_folder(reasons);
  }

 private:
  std::function<void()> meddle_;
};

TEST_F(Change, SourceThatChangesOnceIsBuiltAsItIsThen) {
  bool first = true;
  MeddlingCache meddling(top + "/cache2", [&] {
    if (first) write("source/noop.cc", "int changed;\n");
    first = false;
  });
  const BuildResult result = build(&meddling);
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  EXPECT_EQ(result.entry->fields(), build_request(manifest(), options)->fields);
  EXPECT_EQ(lines("builds"), 1u);
}

TEST_F(Change, SourceThatKeepsChangingIsNamed) {
  int number = 0;
  MeddlingCache meddling(top + "/cache2",
                         [&] { write("source/noop.cc", std::to_string(++number)); });
  EXPECT_EQ(build(&meddling).entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kSourceChanged)) << text_of_reasons();
  EXPECT_EQ(lines("builds"), 0u);
}

TEST_F(Change, CompilerReplacedOnceMeansBuildingAgain) {
  tool("ninja", "[ -e $TOP/builds ] || printf '#!/bin/sh\\necho c++ 2.0.0\\n' > $TOP/bin/c++\n" +
                    good_ninja());
  const BuildResult result = build();
  ASSERT_NE(result.entry, nullptr) << text_of_reasons();
  EXPECT_EQ(result.entry->maker().text, "c++ 2.0.0, cc 1.2.3");
  EXPECT_EQ(lines("builds"), 2u);
}

TEST_F(Change, CompilerReplacedWithTheSameVersionIsAnother) {
  tool("ninja", "[ -e $TOP/builds ] || echo '# rebuilt' >> $TOP/bin/c++\n" + good_ninja());
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
  EXPECT_EQ(lines("builds"), 2u);
}

TEST_F(Change, CompilerReplacedAgainAndAgainIsNamed) {
  tool("ninja", "echo '# again' >> $TOP/bin/c++\n" + good_ninja());
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kToolchainChanged)) << text_of_reasons();
  EXPECT_TRUE(left_nothing());
}

TEST_F(Change, CompilerRemovedMeanwhileIsNamed) {
  tool("ninja", "rm $TOP/bin/c++\n" + good_ninja());
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildNoCompiler)) << text_of_reasons();
}

TEST_F(Change, AnotherCompilerMakesAVariantOfItsOwn) {
  const std::string first = build().plugin;
  tool("c++", "echo 'c++ 3.0.0'");
  const BuildResult second = build();
  EXPECT_TRUE(second.built);
  EXPECT_NE(second.plugin, first);
  EXPECT_EQ(lines("builds"), 2u);
}

TEST_F(Change, FailureOfTheSourceIsRememberedUntilAnInputChanges) {
  tool("ninja", "echo build >> $TOP/builds; echo 'noop.cc:1:5: error: no'; exit 1");
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_FALSE(failed_with(Code::kBuildRemembered));
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildRemembered)) << text_of_reasons();
  EXPECT_TRUE(failed_with(Code::kBuildFailed)) << text_of_reasons();
  EXPECT_EQ(lines("builds"), 1u);
  tool("c++", "echo 'c++ 3.0.0'");
  build();
  EXPECT_EQ(lines("builds"), 2u);
  write("source/noop.cc", "int corrected;\n");
  tool("ninja", good_ninja());
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Change, FailureIsForgottenOnRequest) {
  tool("ninja", "echo 'noop.cc:1:5: error: no'; exit 1");
  build();
  tool("ninja", good_ninja());
  options.retry_failed = true;
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Change, PassingFailuresAreNotHeldAgainstTheNextAttempt) {
  for (const char* body : {"echo 'a.cc: No space left on device'; exit 1", "kill -KILL $$",
                           "echo 'cc1plus: out of memory allocating 9 bytes'; exit 1"}) {
    tool("ninja", body);
    EXPECT_EQ(build().entry, nullptr) << body;
  }
  tool("ninja", good_ninja());
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Change, SixteenThreadsColdMakeOneBuild) {
  const Manifest plugin = manifest();
  std::atomic<int> good{0}, built{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      std::vector<Reason> why;
      const BuildResult result = build_plugin(plugin, options, cache.get(), nullptr, &why);
      good += result.entry != nullptr;
      built += result.built;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16);
  EXPECT_EQ(built, 1);
  EXPECT_EQ(lines("builds"), 1u);
}

TEST_F(Change, WhatDoesNotChangeTheResultDoesNotChangeTheRequest) {
  const CacheRequest before = *build_request(manifest(), options);
  for (const char* name :
       {"test_noop.py", "tests/data.bin", ".git/HEAD", "conftest.py", "__pycache__/noop.pyc",
        "bench_noop.py", "build/noop.so", "unused.h", "weights.bin"}) {
    write("source/" + std::string(name), "x");
  }
  utimensat(AT_FDCWD, (source() + "/noop.cc").c_str(), nullptr, 0);
  setenv("CFLAGS", "-O0", 1);
  options.jobs = 7;
  options.timeout_seconds = 9;
  EXPECT_EQ(build_request(manifest(), options)->fields, before.fields);
  unsetenv("CFLAGS");
  std::filesystem::rename(source(), top + "/elsewhere");
  Manifest moved = manifest_at(top + "/elsewhere");
  EXPECT_EQ(build_request(moved, options)->fields, before.fields);
}

TEST_F(Change, WhatChangesTheResultChangesTheRequest) {
  std::vector<std::vector<CacheField>> seen = {build_request(manifest(), options)->fields};
  const auto expect_new = [&](const char* what) {
    seen.push_back(build_request(manifest(), options)->fields);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), seen.back()), 1) << what;
  };
  write("source/noop.cc", "#include \"deep/er.h\"\n  #  include <deep/est.h>\nint other;\n");
  expect_new("a source");
  write("source/deep/er.h", "");
  expect_new("a new header");
  std::filesystem::rename(source() + "/deep/er.h", source() + "/deep/est.h");
  expect_new("a name");
  write("source/meson.build", "");
  expect_new("rules");
  write("source/meson.build", "include_directories('more')");
  expect_new("other rules");
  write("source/more/unused.h", "");
  expect_new("a folder that the rules name");
  write("source/noop.cc", "#include <unused.h>\n");
  expect_new("another include");
  write("source/more/unused.h", "int used;\n");
  expect_new("a header in a folder that the rules name");
  options.cuda_archs = "9.0";
  expect_new("CUDA architectures");
  options.hip_archs = "gfx90a";
  expect_new("HIP architectures");
  options.cpu_level = 3;
  expect_new("a level");
  options.debug = true;
  expect_new("debug");
}

TEST_F(Change, FoldersWithSpacesQuotesAndOtherLetters) {
  for (const char* name : {"with space", "with'quote", "with\"quotes", "größe-日本"}) {
    const std::string folder = top + "/" + name;
    std::filesystem::copy(source(), folder);
    write(std::string(name) + "/noop.cc", name);
    PlainCache other(folder + " cache");
    std::vector<Reason> why;
    const BuildResult result = build_plugin(manifest_at(folder), options, &other, nullptr, &why);
    EXPECT_NE(result.entry, nullptr) << name << (why.empty() ? "" : to_text(why.front()));
  }
}

TEST_F(Change, FilesThatAreNoFilesAreNamed) {
  write("source/noop.cc", "#include \"pipe.h\"\n#include \"link.h\"\n");
  ASSERT_EQ(mkfifo((source() + "/pipe.h").c_str(), 0600), 0);
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildSource)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("pipe.h"), std::string::npos);
  std::filesystem::remove(source() + "/pipe.h");
  std::filesystem::create_symlink("nowhere", source() + "/link.h");
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildSource)) << text_of_reasons();
  std::filesystem::remove(source() + "/link.h");
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

TEST_F(Change, OnlyWhatIsNamedIsCopied) {
  write("source/noop.cc", "#include \"deep/er.h\"\n");
  write("source/deep/er.h", "");
  write("source/deep/unused.h", "");
  std::filesystem::resize_file(source() + "/deep/unused.h", 1ull << 40);
  tool("meson", "mkdir -p \"$4\"; cd \"$5/plugins/plugin\" && ls -R > $TOP/copied");
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
  EXPECT_NE(read("copied").find("er.h"), std::string::npos) << read("copied");
  EXPECT_EQ(read("copied").find("unused.h"), std::string::npos) << read("copied");
}

TEST_F(Change, TooLargeASourceIsNamed) {
  write("source/noop.cc", "");
  std::filesystem::resize_file(source() + "/noop.cc", 1ull << 40);
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kSourceTooLarge)) << text_of_reasons();
  EXPECT_FALSE(build_request(manifest(), options));
  EXPECT_EQ(lines("setups"), 0u);
}

// Reading takes longer than the time limit: the reason names the reading and does not blame the
// first tool.
TEST_F(Change, ReadingCountsForTheTimeLimit) {
  std::filesystem::resize_file(source() + "/noop.cc", 250 << 20);
  options.timeout_seconds = 0.001;
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_EQ(text_of_reasons().find("build-no-compiler"), std::string::npos) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("build-timeout: the plugin's files were being read"),
            std::string::npos)
      << text_of_reasons();
}

TEST_F(Change, ReadingIsStoppedOnRequest) {
  std::filesystem::resize_file(source() + "/noop.cc", 250 << 20);
  watcher.stop_at_once = true;
  tool("c++", "touch $TOP/asked");
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kCancelled)) << text_of_reasons();
  EXPECT_FALSE(std::filesystem::exists(top + "/asked"));
}

TEST_F(Change, NoCacheIsNamed) {
  std::vector<Reason> why;
  EXPECT_EQ(build_plugin(manifest(), options, nullptr, nullptr, &why).entry, nullptr);
  ASSERT_EQ(why.size(), 1u);
  EXPECT_EQ(why[0].code, Code::kBuildNoCache);
}

TEST_F(Change, FoldersThatOthersCanWriteAreRefused) {
  options.trusted = false;
  ASSERT_EQ(chmod(source().c_str(), 0777), 0);
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildUntrusted)) << text_of_reasons();
  EXPECT_EQ(lines("setups"), 0u);
  options.trusted = true;
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

}  // namespace
}  // namespace opdock::testing
