// Tests that the file that is checked, opened and loaded is one file, even if its path changes
// meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "folder.h"

namespace {

// Each function is run once: before the next dlopen, and after the file named "p.so" was looked at.
std::function<void()> before_dlopen, once_looked_at;

void run_once(std::function<void()>* what) {
  if (const std::function<void()> now = std::exchange(*what, nullptr)) now();
}

int open_and_run(int folder, const char* name, int flags, mode_t mode) {
  static const auto real =
      reinterpret_cast<int (*)(int, const char*, int, ...)>(dlsym(RTLD_NEXT, "openat"));
  const bool is_it = std::strcmp(name, "p.so") == 0;
  const bool only_looks = (flags & O_PATH) != 0;
  if (is_it && !only_looks) run_once(&once_looked_at);
  const int fd = real(folder, name, flags, mode);
  if (is_it && only_looks) run_once(&once_looked_at);
  return fd;
}

}  // namespace

// Replaces the C library's functions, also for the code under test, which is linked into this
// program.
extern "C" {

void* dlopen(const char* path, int flags) {
  static const auto real = reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_NEXT, "dlopen"));
  if ((flags & RTLD_NOLOAD) == 0) run_once(&before_dlopen);
  return real(path, flags);
}

int openat(int folder, const char* name, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return open_and_run(folder, name, flags, mode);
}

// With _FORTIFY_SOURCE, which Ubuntu's compilers set, openat calls these if its flags are not
// constant.
int checked_openat(int folder, const char* name, int flags) __asm__("__openat_2");
int checked_openat64(int folder, const char* name, int flags) __asm__("__openat64_2");
int checked_openat(int folder, const char* name, int flags) {
  return open_and_run(folder, name, flags, 0);
}
int checked_openat64(int folder, const char* name, int flags) {
  return open_and_run(folder, name, flags, 0);
}

}  // extern "C"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

TEST(Swapped, BeforeDlopenRunsNothingOfTheOther) {
  const Folder folder;
  const std::string path = folder.add("good", "p.so");
  const std::shared_ptr<const Candidate> candidate = at(*find(explicit_place(path)), path);
  const pid_t child = fork();
  if (child == 0) {
    before_dlopen = [&] { folder.replace("constructor_exit", "p.so"); };
    std::vector<Reason> reasons;
    // The checked file has lost its name meanwhile and is refused for that reason.
    const LoadedPlugin* plugin = load(candidate, counting_host(), &reasons);
    _exit(plugin == nullptr && has_code(reasons, Code::kFileChanged) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);  // 3: the other plugin's constructor ran
}

TEST(Swapped, BetweenLookAndOpenIsNotRead) {
  const Folder folder;
  const std::string path = folder.add("good", "p.so");
  once_looked_at = [&] {
    fs::rename(path, folder.path("away"));
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  };
  const std::shared_ptr<const Candidate> found = at(*find(explicit_place(folder.path())), path);
  EXPECT_EQ(once_looked_at, nullptr);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(has_code(found->verdict.reasons, Code::kNotRegular)) << describe(*found);
}

TEST(Swapped, ForALinkIsNotFollowed) {
  const Folder folder;
  const std::string path = folder.add("good", "p.so");
  once_looked_at = [&] {
    fs::rename(path, folder.path("away"));
    fs::create_symlink("/dev/full", path);
  };
  const std::shared_ptr<const Candidate> found = at(*find(explicit_place(folder.path())), path);
  EXPECT_EQ(once_looked_at, nullptr);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(has_code(found->verdict.reasons, Code::kLinkBroken)) << describe(*found);
}

TEST(Swapped, BehindALinkIsNotOpened) {
  const Folder folder;
  const std::string target = folder.add("good", "target.so"), path = folder.path("p.so");
  fs::create_symlink(target, path);
  once_looked_at = [&] {
    fs::rename(target, folder.path("away"));
    fs::create_symlink("/dev/full", target);
  };
  const std::shared_ptr<const Candidate> found = at(*find(explicit_place(folder.path())), path);
  EXPECT_EQ(once_looked_at, nullptr);
  ASSERT_NE(found, nullptr);
  ASSERT_TRUE(found->file.note) << describe(*found);
  EXPECT_EQ(found->file.note->name, "good");
}

TEST(Opened, ByADescriptorKeepsItsName) {
  const Folder folder;
  const std::string path = folder.add("good", "p.so");
  std::vector<Reason> reasons;
  const LoadedPlugin* plugin =
      load(at(*find(explicit_place(path)), path), counting_host(), &reasons);
  ASSERT_NE(plugin, nullptr);
  Dl_info info{};
  ASSERT_NE(dladdr(plugin->descriptor, &info), 0);
  EXPECT_EQ(info.dli_fname, path);
}

TEST(Opened, ItFindsLibrariesBesideIt) {
  const Folder folder;
  fs::copy_file(case_path("libneighbour"), folder.path("libneighbour.so"));
  // for the second plugin, the library is already loaded
  for (const char* name : {"p.so", "q.so"}) {
    const std::string path = folder.add("needs_neighbour", name);
    std::vector<Reason> reasons;
    EXPECT_NE(load(at(*find(explicit_place(path)), path), counting_host(), &reasons), nullptr)
        << to_text(reasons.front());
  }
}

TEST(Opened, ALoadersMessageNamesTheFile) {
  const Folder folder;
  const std::string path = folder.add("missing_symbol", "p.so");
  std::vector<Reason> reasons;
  EXPECT_EQ(load(at(*find(explicit_place(path)), path), counting_host(), &reasons), nullptr);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].found.find(path + ": undefined symbol"), 0u) << reasons[0].found;
}

}  // namespace
}  // namespace opdock::testing
