// Tests what a started program inherits from the process that starts it.
// SPDX-License-Identifier: Apache-2.0
#include "base/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>

#include "base/fd.h"

namespace opdock {
namespace {

// Returns what `script` prints; `files` are passed to it too.
std::string output_of(const std::string& script, std::vector<FdMap> files = {},
                      const std::vector<std::string>* environment = nullptr,
                      const std::string& folder = "") {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  files.push_back({ends[1], 1});
  Child child;
  EXPECT_EQ(spawn({{"/bin/sh", "-c", script}, environment, folder}, files, &child), 0);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  const std::optional<ChildEnd> end = child.reap();
  EXPECT_TRUE(end && !end->by_signal && end->number == 0) << script;
  return text;
}

TEST(Spawn, NoSignalIsBlockedOrIgnored) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto former = signal(SIGPIPE, SIG_IGN);
  const std::string text = output_of("grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -f2");
  signal(SIGPIPE, former);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  constexpr uint64_t kOrdinary = (1ull << 31) - 1;  // the C library uses signals 32 and 33
  ASSERT_EQ(text.size(), 2 * 17u) << text;
  EXPECT_EQ(std::stoull(text.substr(0, 16), nullptr, 16) & kOrdinary, 0u) << text;
  EXPECT_EQ(std::stoull(text.substr(17, 16), nullptr, 16) & kOrdinary, 0u) << text;
}

TEST(Spawn, TheProcessGroupIsItsOwn) {
  EXPECT_EQ(output_of("test $$ = $(cut -d' ' -f5 /proc/$$/stat) && echo leads"), "leads\n");
}

TEST(Spawn, WhatIsNotGivenIsNothing) {
  const Fd other(open("/proc/self/exe", O_RDONLY));  // not close-on-exec, as a host's file may be
  EXPECT_EQ(output_of("readlink /proc/$$/fd/0 /proc/$$/fd/2"), "/dev/null\n/dev/null\n");
}

// Swaps two descriptors, and passes descriptor 0 as in a host that has closed its own 0 to 2.
TEST(Spawn, FilesAreThoseThatWereMeant) {
  const auto file_of = [](const char* text) {
    Fd file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    EXPECT_GT(write(file.get(), text, 3), 0);
    lseek(file.get(), 0, SEEK_SET);
    return file;
  };
  const Fd a = file_of("aaa"), b = file_of("bbb");
  EXPECT_EQ(output_of("cat <&" + std::to_string(a.get()) + "; cat <&" + std::to_string(b.get()),
                      {{a.get(), b.get()}, {b.get(), a.get()}}),
            "bbbaaa");
  const Fd input(dup(0)), c = file_of("ccc");
  dup2(c.get(), 0);
  EXPECT_EQ(output_of("cat <&2", {{0, 2}}), "ccc");
  dup2(input.get(), 0);
}

TEST(Spawn, TheEnvironmentAndTheFolderAreThoseGiven) {
  setenv("OPDOCK_TEST_SPAWN", "inherited", 1);
  EXPECT_EQ(output_of("echo $OPDOCK_TEST_SPAWN"), "inherited\n");
  const std::vector<std::string> own = {"PATH=/usr/bin:/bin", "OTHER=given"};
  EXPECT_EQ(output_of("echo $OPDOCK_TEST_SPAWN$OTHER; pwd", {}, &own, "/usr"), "given\n/usr\n");
  unsetenv("OPDOCK_TEST_SPAWN");
}

TEST(Spawn, AMissingProgramIsAnError) {
  Child child;
  EXPECT_EQ(spawn({{"/nowhere/program"}}, {}, &child), ENOENT);
  EXPECT_FALSE(child);
}

}  // namespace
}  // namespace opdock
