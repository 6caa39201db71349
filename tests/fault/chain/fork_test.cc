// Forks at every stage of another thread's work and within hooks: the child is served or gets an
// error at once, and the parent's work goes on. SIGALRM ends a child that hangs.
// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "chain_fixture.h"
#include "facts/probes.h"
#include "support/sanitizer.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A child's result, which is its exit status.
enum Answer { kServed = 0, kRefused = 1, kWrong = 2 };

class Fork : public ChainFixture {
 protected:
  void SetUp() override {
#ifdef OPDOCK_TEST_TSAN
    GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads after a fork";
#endif
    setenv("OPDOCK_CASE_BEGUN", path("begun").c_str(), 1);
    setenv("OPDOCK_CASE_GO", path("go").c_str(), 1);
  }
  // Runs `work` in a child and returns the child's wait status.
  static int in_child(const std::function<int()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      _exit(work());
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }
  static int exited(Answer answer) { return answer << 8; }

  static Answer answer_of(const Outcome& outcome) {
    if (outcome.status == OPDOCK_OK) return kServed;
    const bool is_known = outcome.has("left-by-fork") || outcome.has("within-itself") ||
                          outcome.text.find("left-by-fork") != outcome.text.npos ||
                          outcome.text.find("within-itself") != outcome.text.npos;
    return is_known ? kRefused : kWrong;
  }
  void wait_for(const std::string& file) const {
    for (int i = 0; i < 3000 && !fs::exists(path(file)); ++i) std::this_thread::sleep_for(10ms);
    ASSERT_TRUE(fs::exists(path(file)));
  }
  void go() const { top_.write("go", ""); }
  // Replaces ninja by a script that waits until the file `go` exists.
  void slow_ninja() {
    tool("ninja",
         "echo build >> $TOP/builds\n/bin/mkdir -p \"$2/plugins\"\n"
         "while [ ! -e $TOP/go ]; do /bin/sleep 0.02; done\n/bin/cp " +
             case_path("good") + " \"$2/plugins/good.so\"");
  }
};

// Forks often, because the other thread may be at any point of the scan.
TEST_F(Fork, DuringAScan) {
  for (int i = 0; i < 50; ++i) top_.add("good", "plugins/copy" + std::to_string(i) + ".so");
  top_.add("good_b", "plugins/good_b.so");
  const RuntimePtr runtime = this->runtime();
  ASSERT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  std::atomic<bool> stop{false};
  std::thread scanning([&] {
    while (!stop) {
      char* text = nullptr;
      opdock_list_json(runtime.get(), 1, &text, nullptr, 0);
      opdock_free(text);
    }
  });
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 137 * i));
    EXPECT_EQ(in_child([&] { return answer_of(call(runtime.get(), "good_b")); }), exited(kServed));
  }
  stop = true;
  scanning.join();
}

TEST_F(Fork, DuringTheFirstLookOfOtherRuntimes) {
  top_.add("good", "plugins/good.so");
  top_.add("good_b", "plugins/good_b.so");
  const RuntimePtr runtime = this->runtime();
  std::atomic<bool> stop{false};
  std::thread judging([&] {
    while (!stop) {
      const RuntimePtr other = this->runtime();
      char* text = nullptr;
      opdock_inspect_json(other.get(), path("plugins/good.so").c_str(), &text, nullptr, 0);
      opdock_free(text);
      resolve(other.get(), "good");
    }
  });
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 137 * i));
    EXPECT_EQ(in_child([&] { return answer_of(call(runtime.get(), "good_b")); }), exited(kServed));
  }
  stop = true;
  judging.join();
}

TEST_F(Fork, WhileAnotherThreadLooksAtWhatIsLoaded) {
  const auto look = [] {
    MachineFacts facts;
    probe_in_process(&facts);
  };
  std::atomic<bool> stop{false};
  std::thread looking([&] {
    while (!stop) look();
  });
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    EXPECT_EQ(in_child([&] {
                look();
                return kServed;
              }),
              exited(kServed));
  }
  stop = true;
  looking.join();
}

class ForkDuringALoad : public Fork, public ::testing::WithParamInterface<const char*> {};

TEST_P(ForkDuringALoad, TheChildIsRefusedThePluginAndServedOthers) {
  const std::string name = GetParam();
  top_.add(name, "plugins/" + name + ".so");
  top_.add("good", "plugins/good.so");
  const RuntimePtr runtime = this->runtime();
  Outcome mine;
  std::thread loading([&] { mine = resolve(runtime.get(), name); });
  wait_for("begun");
  EXPECT_EQ(in_child([&] {
              const Outcome first = resolve(runtime.get(), name);
              const Outcome again = resolve(runtime.get(), name);
              const bool is_refused = first.has("left-by-fork") && again.has("left-by-fork");
              if (call(runtime.get(), "good").status != OPDOCK_OK) return kWrong;
              return is_refused && first.status == OPDOCK_INCOMPATIBLE ? kRefused : kWrong;
            }),
            exited(kRefused));
  go();
  loading.join();
  EXPECT_EQ(mine.status, OPDOCK_OK) << mine.text;
  // The plugin was completely loaded before this fork, so the child can use it.
  EXPECT_EQ(in_child([&] { return answer_of(call(runtime.get(), name)); }), exited(kServed));
}

INSTANTIATE_TEST_SUITE_P(Stages, ForkDuringALoad,
                         ::testing::Values("constructor_waits", "init_waits"),
                         [](const auto& row) { return std::string(row.param); });

TEST_F(Fork, DuringABuildTheChildWaitsForTheParentsAsAnyProcess) {
  add_source("good");
  top_.add("good_b", "plugins/good_b.so");
  slow_ninja();
  const RuntimePtr runtime = this->runtime();
  Outcome mine;
  std::thread building([&] { mine = resolve(runtime.get(), "good"); });
  wait_for("builds");
  EXPECT_EQ(in_child([&] {
              const Answer other = answer_of(call(runtime.get(), "good_b"));
              go();
              const Answer same = answer_of(call(runtime.get(), "good"));
              return other == kServed ? same : kWrong;
            }),
            exited(kServed));
  building.join();
  EXPECT_EQ(mine.status, OPDOCK_OK) << mine.text;
  EXPECT_EQ(builds(), 1u);
}

// The lock file is the parent's. The child has a copy of the descriptor and must not keep the lock.
TEST_F(Fork, WhileTheCachesLockIsHeldAndItsHolderDies) {
  add_source("good");
  slow_ninja();
  const RuntimePtr runtime = this->runtime();
  const pid_t holder = fork();
  if (holder == 0) {
    alarm(60);
    std::thread([&] { resolve(runtime.get(), "good"); }).detach();
    while (builds() == 0) std::this_thread::sleep_for(10ms);
    if (fork() == 0) {  // this child outlives the holder
      alarm(200);
      while (fs::exists(path()) && !fs::exists(path("done"))) std::this_thread::sleep_for(10ms);
      _exit(0);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(holder, &status, 0), holder);
  ASSERT_EQ(status, 0);
  go();
  alarm(100);  // ends the test if the grandchild kept the lock, which would take longer
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  alarm(0);
  top_.write("done", "");
}

TEST_F(Fork, DuringACallOfAThreadSafeOp) {
  top_.add("run_waits", "plugins/run_waits.so");
  const RuntimePtr runtime = this->runtime();
  Outcome mine;
  std::thread calling([&] { mine = call(runtime.get(), "run_waits"); });
  wait_for("begun");
  EXPECT_EQ(in_child([&] {
              go();
              return answer_of(call(runtime.get(), "run_waits"));
            }),
            exited(kServed));
  calling.join();
  EXPECT_EQ(mine.status, OPDOCK_OK);
}

TEST_F(Fork, DuringACallOfAnOpThatTakesOneThreadTheChildIsRefusedIt) {
  top_.add("serial_run_waits", "plugins/serial_run_waits.so");
  top_.add("good", "plugins/good.so");
  const RuntimePtr runtime = this->runtime();
  Outcome mine;
  std::thread calling([&] { mine = call(runtime.get(), "serial_run_waits"); });
  wait_for("begun");
  EXPECT_EQ(in_child([&] {
              const Outcome first = call(runtime.get(), "serial_run_waits");
              Outcome again;
              std::thread([&] { again = call(runtime.get(), "serial_run_waits"); }).join();
              const bool is_refused = answer_of(first) == kRefused && answer_of(again) == kRefused;
              if (call(runtime.get(), "good").status != OPDOCK_OK) return kWrong;
              return is_refused && first.status == OPDOCK_UNSUPPORTED ? kRefused : kWrong;
            }),
            exited(kRefused));
  go();
  calling.join();
  EXPECT_EQ(mine.status, OPDOCK_OK);
  EXPECT_EQ(call(runtime.get(), "serial_run_waits").status, OPDOCK_OK);
}

TEST_F(Fork, WhileAnotherThreadIsInALogHook) {
  top_.add("run_says", "plugins/run_says.so");
  Program program;
  std::atomic<bool> is_in{false}, leave{false};
  program.on_log = [&](const std::string& text) {
    if (text != "run") return;
    is_in = true;
    while (!leave) std::this_thread::sleep_for(1ms);
  };
  RuntimePtr runtime = this->runtime(&program);
  std::thread calling([&] { call(runtime.get(), "run_says"); });
  while (!is_in) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(in_child([&] {
              leave = true;
              const Answer answer = answer_of(call(runtime.get(), "run_says"));
              opdock_runtime_destroy(runtime.release());  // waits only for hooks of this process
              return answer;
            }),
            exited(kServed));
  leave = true;
  calling.join();
}

TEST_F(Fork, WhileAnotherThreadIsInAProgressHook) {
  add_source("good");
  top_.add("good_b", "plugins/good_b.so");
  Program program;
  std::atomic<bool> is_in{false}, leave{false};
  program.on_progress = [&](const std::string&) {
    is_in = true;
    while (!leave) std::this_thread::sleep_for(1ms);
  };
  const RuntimePtr runtime = this->runtime(&program);
  std::thread building([&] { resolve(runtime.get(), "good"); });
  while (!is_in) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(in_child([&] { return answer_of(call(runtime.get(), "good_b")); }), exited(kServed));
  leave = true;
  building.join();
  EXPECT_EQ(call(runtime.get(), "good").status, OPDOCK_OK);
}

// The child runs inside the hook too: it is refused the op that the parent builds, and gets other
// ops.
TEST_F(Fork, ByAProgressHookWhoseChildCalls) {
  add_source("good");
  top_.add("good_b", "plugins/good_b.so");
  Program program;
  RuntimePtr runtime;
  int status = -1;
  bool done = false;
  program.on_progress = [&](const std::string&) {
    if (std::exchange(done, true)) return;
    status = in_child([&] {
      if (call(runtime.get(), "good_b").status != OPDOCK_OK) return kWrong;
      return answer_of(call(runtime.get(), "good"));
    });
  };
  runtime = this->runtime(&program);
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(status, exited(kRefused));
}

// If the child returns from the hook, its work ends as cancelled, and the parent's work continues.
TEST_F(Fork, ByAHookThatComesBackInTheChild) {
  add_source("good");
  tool("ninja",
       "echo build >> $TOP/builds\n/bin/mkdir -p \"$2/plugins\"\necho '[1/2] one'\n"
       "while [ ! -e $TOP/go ]; do /bin/sleep 0.02; done\n/bin/cp " +
           case_path("good") + " \"$2/plugins/good.so\"");
  Program program;
  pid_t child = -1;
  const pid_t self = getpid();
  program.cancelled = [&] {
    if (child == -1 && fs::exists(path("builds"))) {
      child = fork();
      if (child == 0) alarm(60);
    }
    return false;
  };
  const RuntimePtr runtime = this->runtime(&program);
  std::thread waits([&] {
    while (!fs::exists(path("child"))) std::this_thread::sleep_for(1ms);
    go();
  });
  const Outcome mine = resolve(runtime.get(), "good");
  if (getpid() != self) {
    top_.write("child", std::to_string(mine.status));
    _exit(mine.status == OPDOCK_CANCELLED ? kServed : kWrong);
  }
  waits.join();
  EXPECT_EQ(mine.status, OPDOCK_OK) << mine.text;
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, exited(kServed));
  EXPECT_EQ(builds(), 1u);
}

}  // namespace
}  // namespace opdock::testing
