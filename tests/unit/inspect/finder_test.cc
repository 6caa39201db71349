// Tests finding native files and installed packages.
// SPDX-License-Identifier: Apache-2.0
#include "inspect/finder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "inspect/distributions.h"
#include "inspect/python_environment.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

Names below(const std::string& folder, const Names& paths) {
  Names names;
  for (const std::string& path : paths) names.push_back(fs::relative(path, folder).string());
  return names;
}

TEST(Finder, FindsWhatIsNativeOnce) {
  const opdock_test::TemporaryFolder folder;
  const std::string elf = "\177ELF";
  folder.write("a/libx.so.1.2", elf);
  fs::create_symlink("libx.so.1.2", folder.path() / "a/libx.so.1");
  fs::create_symlink("libx.so.1", folder.path() / "a/libx.so");
  fs::create_hard_link(folder.path() / "a/libx.so.1.2", folder.path() / "a/zzz.so");
  folder.write("a/deep/er/y.so", elf);
  fs::create_directory_symlink("..", folder.path() / "a/deep/loop");
  fs::create_directory_symlink(folder.path() / "a", folder.path() / "0");
  fs::create_symlink("a/libx.so.1.2", folder.path() / "0.so");
  folder.write("bin/tool", elf);
  folder.write("bin/script", "#!/bin/sh");
  folder.write("bin/notes.txt", elf);
  folder.write("w/p-1-py3-none-any.whl", "");
  folder.write("win/x.dll", "MZ");
  folder.write("dev/libdev.so", "/* GNU ld script */ INPUT(libx.so.1)");
  fs::create_symlink("/nowhere", folder.path() / "dev/gone.so");
  const std::string root = folder.path().string();
  Finder finder;
  finder.walk(root);
  EXPECT_EQ(below(root, finder.natives), (Names{"a/libx.so.1.2", "a/deep/er/y.so", "bin/tool"}));
  EXPECT_EQ(below(root, finder.wheels), Names{"w/p-1-py3-none-any.whl"});
  Names skipped;
  for (const Skipped& one : finder.skipped) {
    skipped.push_back(fs::relative(fs::path(one.path).parent_path(), root).string() + "/" +
                      fs::path(one.path).filename().string() + ": " +
                      std::string(info(one.reason.code).name));
  }
  EXPECT_EQ(skipped, (Names{"dev/libdev.so: linker-script", "win/x.dll: foreign-file",
                            "dev/gone.so: link-broken"}));
}

TEST(Finder, KnowsWherePackagesAreInstalled) {
  const opdock_test::TemporaryFolder folder;
  folder.write("lib/site/foo-1.dist-info/RECORD", "");
  folder.write("lib/other/x.py", "");
  Finder finder;
  finder.walk(folder.path().string());
  EXPECT_EQ(below(folder.path().string(), finder.sites), Names{"lib/site"});
}

TEST(Distributions, AreReadFromTheirRecords) {
  const opdock_test::TemporaryFolder folder;
  folder.write("Foo_Bar-1.2.dist-info/METADATA",
               "Metadata-Version: 2.1\nName: Foo.Bar\nVersion: 1.2\nRequires-Dist: numpy (>=1.2)\n"
               "Requires-Dist: Nvidia_Cublas-cu12==12.1 ; platform_system == 'Linux'\n"
               "Requires-Dist: pytest ; extra == 'test'\n\nName: not this\n");
  folder.write("Foo_Bar-1.2.dist-info/RECORD",
               "foo/x.so,sha256=abc,12\nfoo/__init__.py,,\r\n\"foo/a,\"\"b.so\",,\n"
               "../../bin/tool,,\n/abs/y.so.1,,\n");
  folder.write("old-2.egg-info/PKG-INFO", "Name: old\r\nVersion: 2\r\n\r\nVersion: 3");
  folder.write("old-2.egg-info/top_level.txt", "old\n_old\n");
  const std::string site = folder.path().string();
  const std::vector<Distribution> found = read_distributions(site);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "Foo.Bar");
  EXPECT_EQ(found[0].version, "1.2");
  EXPECT_EQ(found[0].files, (Names{site + "/foo/x.so", site + "/foo/a,\"b.so",
                                   folder.path().parent_path().parent_path().string() + "bin/tool",
                                   "/abs/y.so.1"}));
  EXPECT_EQ(found[0].requirements, (Names{"numpy", "nvidia-cublas-cu12"}));
  EXPECT_EQ(found[1].version, "2");
  EXPECT_EQ(found[1].tops, (Names{site + "/old", site + "/_old"}));
  EXPECT_TRUE(read_distributions("/nowhere").empty());
}

TEST(Distributions, HaveNamesAsPyPiComparesThem) {
  for (const char* name : {"Foo.Bar_baz", "foo-bar-baz", "FOO__Bar.-baz"}) {
    EXPECT_EQ(normal_name(name), "foo-bar-baz");
  }
}

TEST(PythonEnvironment, VirtualOnesHaveFoldersOfPackages) {
  const opdock_test::TemporaryFolder folder;
  fs::create_directories(folder.path() / "lib/python3.11/site-packages");
  fs::create_directories(folder.path() / "lib/other/site-packages");
  EXPECT_EQ(below(folder.path().string(), sites_of_venv(folder.path().string())),
            Names{"lib/python3.11/site-packages"});
}

}  // namespace
}  // namespace opdock
