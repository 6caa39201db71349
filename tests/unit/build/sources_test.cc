// Tests which files of its folder a plugin is built from: those that it names and those that they
// reach. No other file is read, whatever its size.
// SPDX-License-Identifier: Apache-2.0
#include "build/sources.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "build/named_files.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class Sources : public ::testing::Test {
 protected:
  Sources() {
    std::string pattern = ::testing::TempDir() + "opdock-sources-XXXXXX";
    top = mkdtemp(pattern.data());
    manifest.path = top + "/plugin/plugin.toml";
    manifest.sources = {"a.cc"};
    write("plugin.toml", "");
    write("a.cc", "");
  }
  ~Sources() override {
    std::error_code error;
    fs::remove_all(top, error);
  }
  void write(const std::string& name, const std::string& text) {
    const fs::path path = fs::path(top) / "plugin" / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  void write_hole(const std::string& name, uint64_t size) {
    write(name, "");
    fs::resize_file(top + "/plugin/" + name, size);
  }
  Names list(Progress* progress = nullptr) {
    std::vector<SourceFile> files;
    reasons.clear();
    listed = list_sources(manifest, progress, &files, &reasons);
    Names names;
    for (const SourceFile& file : files) names.push_back(file.name);
    return names;
  }

  std::string top;
  Manifest manifest;
  bool listed = false;
  std::vector<Reason> reasons;
};

TEST_F(Sources, AreWhatTheDeclarationNames) {
  manifest.sources = {"a.cc", "./deep/b.h", "data.txt"};
  manifest.device = DeviceDecl{{"device/k.cuh"}, {}};
  manifest.reference = "reference.py";
  for (const char* name : {"deep/b.h", "data.txt", "device/k.cuh", "reference.py", "other.cc",
                           "deep/other.h", "device/other.cuh", ".hidden", "README.md"}) {
    write(name, "");
  }
  EXPECT_EQ(list(),
            (Names{"a.cc", "data.txt", "deep/b.h", "device/k.cuh", "plugin.toml", "reference.py"}));
}

TEST_F(Sources, AreWhatTheIncludesReach) {
  write("a.cc",
        "#include \"deep/b.h\"\n\t# include <c.h>\n#include <vector>\n#ifdef NEVER\n"
        "#include_next \"d.h\"\n#endif\n#include MACRO\n#include \"/etc/passwd\"\n"
        "#include \"../outside.h\"\n#include \"absent.h\"\n#include \"deep\"\n#include \"last.h\"");
  write("deep/b.h", "#include \"../up.h\"\n#include \"beside.h\"\n#include \"b.h\"\n");
  write("last.h", std::string(200 << 10, 'x') + "#include \"in_a_long_line.h\"\n#include \"e.h\"");
  for (const char* name : {"c.h", "d.h", "up.h", "deep/beside.h", "beside.h", "e.h", "macro.h",
                           "in_a_long_line.h", "deep/other.h", "../outside.h"}) {
    write(name, "");
  }
  EXPECT_EQ(list(), (Names{"a.cc", "c.h", "d.h", "deep/b.h", "deep/beside.h", "e.h", "last.h",
                           "plugin.toml", "up.h"}));
}

TEST_F(Sources, AreWhatTheRulesName) {
  write("meson.build",
        "# 'comment.cc'\nfiles('b.cc', 'src' / 'c.cc', 'absent.cc')\nsubdir('kernels')\n"
        "inc = include_directories('include', 'empty')  # 'it''s'\n"
        "link_args = '-Wl,--version-script=' + meson.current_source_dir() / 'x.map'\n");
  write("kernels/meson.build", "files('k.cc', '.' / 'deep' / 'l.cc')\n");
  write("kernels/k.cc", "#include <i.h>\n#include <kernels/k.h>\n");
  fs::create_directories(top + "/plugin/empty");
  for (const char* name : {"comment.cc", "b.cc", "src/c.cc", "c.cc", "k.cc", "kernels/deep/l.cc",
                           "include/i.h", "include/other.h", "kernels/k.h", "x.map"}) {
    write(name, "");
  }
  EXPECT_EQ(list(),
            (Names{"a.cc", "b.cc", "empty/", "include/", "include/i.h", "kernels/", "kernels/deep/",
                   "kernels/deep/l.cc", "kernels/k.cc", "kernels/k.h", "kernels/meson.build",
                   "meson.build", "plugin.toml", "src/", "src/c.cc", "x.map"}));
}

TEST_F(Sources, AreAllThatLiesInIncludeFolders) {
  manifest.build.include = {"in", "./empty/"};
  write("in/a.h", "#include \"../up.h\"\n#include MACRO\n");
  write("in/deep/unnamed.inc", "");
  fs::create_directories(top + "/plugin/empty");
  fs::create_directories(top + "/elsewhere");
  std::ofstream(top + "/elsewhere/linked.h");
  fs::create_symlink(top + "/elsewhere/linked.h", top + "/plugin/in/linked.h");
  fs::create_directory_symlink(top + "/elsewhere", top + "/plugin/in/link");
  for (const char* name : {"up.h", "other/c.h"}) write(name, "");
  EXPECT_EQ(list(), (Names{"a.cc", "empty/", "in/", "in/a.h", "in/deep/", "in/deep/unnamed.inc",
                           "in/linked.h", "plugin.toml", "up.h"}));
}

TEST_F(Sources, EndInACircleOfLinks) {
  fs::create_directory_symlink(".", top + "/plugin/circle");
  write("a.cc", "#include \"circle/a.cc\"\n");
  const Names names = list();
  EXPECT_TRUE(listed);
  EXPECT_LT(names.size(), 100u);
}

TEST_F(Sources, WhatLiesBesideIsNotRead) {
  write_hole("weights.bin", 1ull << 40);
  EXPECT_EQ(list(), (Names{"a.cc", "plugin.toml"}));
}

TEST_F(Sources, AreNotReadIfTheyAreTooLarge) {
  write_hole("weights.bin", 1ull << 40);
  write("meson.build", "files('weights.bin')\n");
  list();
  EXPECT_FALSE(listed);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kSourceTooLarge);
  EXPECT_TRUE(reasons[0].found.starts_with(top + "/plugin/weights.bin, of 1099511627776 bytes"))
      << reasons[0].found;
}

TEST_F(Sources, AreTooManyForOneBuild) {
  std::string includes;
  for (int i = 0; i <= 10000; ++i) {
    write("h" + std::to_string(i), "");
    includes += "#include \"h" + std::to_string(i) + "\"\n";
  }
  write("a.cc", includes);
  list();
  EXPECT_FALSE(listed);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kSourceTooLarge);
}

TEST_F(Sources, AreNoLongerReadOnceSomebodyAsksToStop) {
  class Stopper : public Progress {
   public:
    void step(std::string_view, double) override {}
    bool cancelled() override { return ++asked != 0; }
    int asked = 0;
  } stopper;
  write_hole("data.txt", 250 << 20);
  manifest.sources.push_back("data.txt");
  list(&stopper);
  EXPECT_FALSE(listed);
  EXPECT_EQ(stopper.asked, 1);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kCancelled);
}

// Reading a process's memory at address 0 fails.
TEST_F(Sources, WhichCannotBeReadAreNamedThemselves) {
  fs::create_symlink("/proc/self/mem", top + "/plugin/b.cc");
  EXPECT_FALSE(
      copy_sources(top + "/plugin", {{"b.cc", ""}}, top + "/copy", nullptr, nullptr, &reasons));
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kBuildSource);
  EXPECT_EQ(reasons[0].found, top + "/plugin/b.cc: Input/output error");
}

TEST_F(Sources, WhoseCopyHasNoFolderSaySo) {
  std::ofstream(top + "/copy") << "a file";
  for (const char* name : {"deep/a.cc", "deep/"}) {
    reasons.clear();
    write("deep/a.cc", "");
    EXPECT_FALSE(
        copy_sources(top + "/plugin", {{name, ""}}, top + "/copy", nullptr, nullptr, &reasons));
    ASSERT_EQ(reasons.size(), 1u);
    EXPECT_EQ(reasons[0].found, top + "/copy/deep: Not a directory");
  }
}

TEST(Lines, AreCutWhereverThePiecesEnd) {
  const std::string text = "one\n\ntwo " + std::string(100000, 'x') + "\nthree\r\nfour";
  for (const size_t size : {1, 2, 3, 7, 65536, 1000000}) {
    Names lines;
    LineCutter cutter([&](std::string_view line) { lines.emplace_back(line); });
    for (size_t at = 0; at < text.size(); at += size) cutter.add(text.substr(at, size));
    cutter.finish();
    EXPECT_EQ(lines, (Names{"one", "three\r", "four"})) << size;
  }
}

TEST(Texts, OfAMesonLine) {
  EXPECT_EQ(texts_of("files('a' / 'b'/'c', x / 'd', '')"), (Names{"a", "a/b", "a/b/c", "d"}));
  EXPECT_EQ(texts_of("x # 'a'"), Names());
  EXPECT_EQ(texts_of("'#a' # 'b"), Names{"#a"});
  EXPECT_EQ(texts_of("'''a''' + 'b"), Names{"a"});
}

}  // namespace
}  // namespace opdock
