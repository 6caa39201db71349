// Tests plugins' constructors. A constructor that aborts, exits, crashes or hangs takes its process
// with it: nothing in the process can prevent that, and these tests document it. Checking a plugin
// never runs its constructors.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "folder.h"
#include "support/sanitizer.h"

namespace opdock::testing {
namespace {

// Loads `plugin` in a child and returns its wait status; the exit status is 0 if loading succeeded.
// SIGALRM ends the child after `seconds`.
int load_in_child(const std::string& plugin, unsigned seconds = 60) {
  const Folder folder;
  folder.add("good");
  const std::string path = folder.add(plugin);
  const SearchOptions options = explicit_place(folder.path());
  // Checking in this process runs no constructor: the plugin looks usable.
  const std::shared_ptr<const Candidate> candidate = at(*find(options), path);
  EXPECT_EQ(candidate->verdict.state, State::kUsable) << describe(*candidate);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(seconds);
    std::vector<Reason> reasons;
    const bool is_loaded = load(candidate, counting_host(), &reasons) != nullptr;
    _exit(is_loaded ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect_good_still_loads(options);
  return status;
}

TEST(Constructor, ThatAbortsEndsItsProcess) {
  const int status = load_in_child("constructor_abort");
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

TEST(Constructor, ThatExitsEndsItsProcess) {
  const int status = load_in_child("constructor_exit");
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(Constructor, ThatCrashesEndsItsProcess) {
  const int status = load_in_child("constructor_crash");
  // sanitizers exit instead of dying of the signal
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

TEST(Constructor, ThatHangsHoldsItsThreadForEver) {
  const int status = load_in_child("constructor_hang", 2);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGALRM);
}

TEST(Constructor, ThatForksIsLoaded) {
  const int status = load_in_child("constructor_fork");
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Constructor, ThatFailsToGetMemoryIsLoaded) {
#if defined(OPDOCK_TEST_ASAN) || defined(OPDOCK_TEST_TSAN)
  GTEST_SKIP() << "a sanitizer ends a program that asks for so much memory";
#endif
  const int status = load_in_child("constructor_memory");
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Constructor, IsNotRunByCheckingOrInspecting) {
  const Folder folder;
  const std::string path = folder.add("constructor_abort");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  EXPECT_EQ(catalog->candidates().size(), 1u);
  EXPECT_EQ(examine(path, probe_machine(), Depth::kInspect)->verdict.state, State::kUsable);
}

}  // namespace
}  // namespace opdock::testing
