// Tests which Pythons a file is for, and where they are found.
// SPDX-License-Identifier: Apache-2.0
#include "link/python.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support/temporary_folder.h"

namespace opdock {
namespace {

std::string of_path(const std::string& path) {
  return python_of_path(path).text();
}
std::string of_tags(const std::string& python, const std::string& abi) {
  return python_of_tags(python, abi).text();
}

TEST(Python, AFilesNameSaysWhichItIsFor) {
  EXPECT_EQ(of_path("/d/x.cpython-311-x86_64-linux-gnu.so"), "Python 3.11");
  EXPECT_EQ(of_path("x.cpython-39-x86_64-linux-gnu.so"), "Python 3.9");
  EXPECT_EQ(of_path("x.cpython-313t-x86_64-linux-gnu.so"), "Python 3.13 without its lock");
  EXPECT_EQ(of_path("x.cpython-314.so"), "Python 3.14");
  EXPECT_EQ(of_path("x.pypy310-pp73-x86_64-linux-gnu.so"), "another Python than CPython");
  EXPECT_EQ(of_path("x.abi3.so"), "Python");
  EXPECT_EQ(of_path("/d.cpython-311-x/x.so"), "Python") << "a folder's name says nothing";
  EXPECT_EQ(of_path("/env/lib/python3.12/site-packages/foo/x.abi3.so"), "Python 3.12");
  EXPECT_EQ(of_path("/env/lib/python3.13t/site-packages/x.so"), "Python 3.13 without its lock");
  EXPECT_EQ(of_path("/usr/lib/python3/dist-packages/x.so"), "Python");
}

TEST(Python, AWheelsTagsSayWhichItIsFor) {
  EXPECT_EQ(of_tags("cp311", "cp311"), "Python 3.11");
  EXPECT_EQ(of_tags("cp39", "abi3"), "Python 3.9 or newer");
  EXPECT_EQ(of_tags("cp310.cp39.cp311", "abi3"), "Python 3.9 or newer");
  EXPECT_EQ(of_tags("cp313", "cp313t"), "Python 3.13 without its lock");
  EXPECT_EQ(of_tags("cp37", "cp37m"), "Python 3.7");
  EXPECT_EQ(of_tags("py3", "none"), "Python");
  EXPECT_EQ(of_tags("py2.py3", "none"), "Python");
  EXPECT_EQ(of_tags("pp310", "pypy310_pp73"), "another Python than CPython");
  EXPECT_EQ(of_tags("", ""), "Python");
}

// Fake interpreters of many versions: copies of one program whose names give the version.
class FoundPython : public testing::Test {
 protected:
  void add(const std::string& path) const {
    std::filesystem::create_directories((folder.path() / path).parent_path());
    std::filesystem::copy_file("/proc/self/exe", folder.path() / path);
  }
  std::string find(const PythonNeed& need, const std::string& path) const {
    setenv("PATH", path.c_str(), 1);
    unsetenv("VIRTUAL_ENV");
    const std::string found = find_python(need, "").value_or("none");
    const std::string top = folder.path().string() + "/";
    return found.starts_with(top) ? found.substr(top.size()) : found;
  }
  std::string in(const std::string& name) const { return (folder.path() / name).string(); }

  opdock_test::TemporaryFolder folder;
  const std::string path = getenv("PATH") == nullptr ? "" : getenv("PATH");
  ~FoundPython() override { setenv("PATH", path.c_str(), 1); }
};

TEST_F(FoundPython, OfTheStableAbiALaterOneDoes) {
  add("a/python3.81");
  add("a/python3.90");
  EXPECT_EQ(find({.version = "3.81"}, in("a")), "a/python3.81");
  EXPECT_EQ(find({.version = "3.85"}, in("a")), "none");
  EXPECT_EQ(find({.version = "3.85", .or_newer = true}, in("a")), "a/python3.90");
  EXPECT_EQ(find({.version = "3.91", .or_newer = true}, in("a")), "none");
  EXPECT_EQ(find({.version = "3.81", .is_another = true}, in("a")), "none");
}

TEST_F(FoundPython, WithoutItsLockIsAnother) {
  add("a/python3.81t");
  EXPECT_EQ(find({.version = "3.81"}, in("a")), "none");
  EXPECT_EQ(find({.version = "3.80", .or_newer = true}, in("a")), "none");
  EXPECT_EQ(find({.version = "3.81t"}, in("a")), "a/python3.81t");
}

// PATH contains pyenv's folder of scripts (shims); the interpreters are elsewhere.
TEST_F(FoundPython, BehindPyenvsShims) {
  for (const char* name : {"python3", "python3.81", "python3.82"}) {
    folder.write(std::string("pyenv/shims/") + name, "#!/bin/sh\nexec pyenv exec\n");
  }
  add("pyenv/versions/3.81.4/bin/python3.81");
  add("pyenv/versions/3.82.0/bin/python3.82");
  EXPECT_EQ(find({.version = "3.81"}, in("pyenv/shims")), "pyenv/versions/3.81.4/bin/python3.81");
  EXPECT_EQ(find({.version = "3.82"}, in("pyenv/shims")), "pyenv/versions/3.82.0/bin/python3.82");
  // If any version will do, the interpreter that pyenv's version file names comes first.
  std::filesystem::create_symlink("python3.81", in("pyenv/versions/3.81.4/bin/python3"));
  std::filesystem::create_symlink("python3.82", in("pyenv/versions/3.82.0/bin/python3"));
  folder.write("pyenv/version", "3.81.4\n");
  EXPECT_EQ(find({}, in("pyenv/shims")), "pyenv/versions/3.81.4/bin/python3");
  setenv("PYENV_VERSION", "3.82.0", 1);
  EXPECT_EQ(find({}, in("pyenv/shims")), "pyenv/versions/3.82.0/bin/python3");
  unsetenv("PYENV_VERSION");
}

}  // namespace
}  // namespace opdock
