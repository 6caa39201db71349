// Tests a host program that reaps all children itself: their process IDs may be reused at any
// moment, so the builder must not send a signal to one.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>

#include "build_fixture.h"

namespace {

std::atomic<int> strays{0};

}  // namespace

// Replaces the C library's kill. Counts signals to IDs that are neither those of a child nor those
// of a child's process group.
extern "C" int kill(pid_t pid, int number) noexcept {
  siginfo_t info;
  const pid_t child = pid < 0 ? -pid : pid;
  if (child != getpid() && number != 0 &&
      waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    ++strays;
  }
  return static_cast<int>(syscall(SYS_kill, pid, number));
}

namespace opdock::testing {
namespace {

class Reaped : public BuildFixture {
 protected:
  // Builds in a process that ignores SIGCHLD; returns its exit status.
  int build_in_host() {
    const pid_t host = fork();
    if (host == 0) {
      signal(SIGCHLD, SIG_IGN);
      const bool is_good = build().entry != nullptr;
      std::ofstream(top + "/told") << text_of_reasons();
      _exit(strays != 0 ? 2 : is_good ? 0 : 1);
    }
    int status = 0;
    waitpid(host, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static bool can_signal_groups() {
    const int self = static_cast<int>(syscall(434, getpid(), 0));  // pidfd_open
    // pidfd_send_signal with PIDFD_SIGNAL_PROCESS_GROUP. Only EINVAL means no support; another
    // error may come because this process need not lead a group.
    const bool can = self >= 0 && (syscall(424, self, 0, nullptr, 1u << 2) == 0 || errno != EINVAL);
    if (self >= 0) close(self);
    return can;
  }
};

TEST_F(Reaped, ByTheHostNoNumberIsSignalled) {
  EXPECT_EQ(build_in_host(), 0) << read("told");
}

TEST_F(Reaped, ByTheHostACancelledBuildEndsAllTheSame) {
  tool("ninja", "sleep 67 & touch $TOP/reached; sleep 68");
  watcher.stop_when = top + "/reached";
  EXPECT_EQ(build_in_host(), 1) << read("told");
  EXPECT_NE(read("told").find("cancelled"), std::string::npos) << read("told");
  EXPECT_EQ(orphans(), std::vector<std::string>());
}

TEST_F(Reaped, ByTheHostTheGroupOfAKilledGuardEndsWithIt) {
  if (!can_signal_groups()) GTEST_SKIP() << "found a kernel before 6.9";
  tool("ninja", "sh -c 'sleep 65; true' & touch $TOP/reached; kill -KILL $PPID; sleep 66");
  EXPECT_EQ(build_in_host(), 1) << read("told");
  EXPECT_NE(read("told").find("build-memory"), std::string::npos) << read("told");
  EXPECT_EQ(orphans(), std::vector<std::string>());
}

}  // namespace
}  // namespace opdock::testing
