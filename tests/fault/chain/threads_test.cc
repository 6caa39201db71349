// Tests several threads that ask at once, and programs that cancel a request.
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "chain_fixture.h"
#include "opdock/compile.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Threads : public ChainFixture {
 protected:
  // Replaces ninja by a script that waits until the file `go` exists.
  void slow_ninja() {
    tool("ninja",
         "echo build >> $TOP/builds\n/bin/mkdir -p \"$2/plugins\"\n"
         "while [ ! -e $TOP/go ]; do /bin/sleep 0.02; done\n/bin/cp " +
             case_path("good") + " \"$2/plugins/good.so\"");
  }
  void wait_for_build(size_t count) {
    for (int i = 0; i < 1000 && builds() < count; ++i) std::this_thread::sleep_for(10ms);
    ASSERT_EQ(builds(), count);
  }
};

TEST_F(Threads, ThatAskForOneOpBuildItOnce) {
  add_source("good");
  slow_ninja();
  Program program;
  const RuntimePtr runtime = this->runtime(&program);
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      if (resolve(runtime.get(), "good").status == OPDOCK_OK) ++served;
    });
  }
  wait_for_build(1);
  top_.write("go", "");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 8);
  EXPECT_EQ(builds(), 1u);
  EXPECT_EQ(program.waits, 0);
}

TEST_F(Threads, AnotherOpDoesNotWait) {
  add_source("good");
  top_.add("good_b", "plugins/good_b.so");
  slow_ninja();
  const RuntimePtr runtime = this->runtime();
  std::atomic<bool> done{false};
  std::thread slow([&] {
    resolve(runtime.get(), "good");
    done = true;
  });
  wait_for_build(1);
  EXPECT_EQ(resolve(runtime.get(), "good_b").status, OPDOCK_OK);
  explain(runtime.get(), "good_b");
  EXPECT_FALSE(done);
  top_.write("go", "");
  slow.join();
}

// Each thread decides for itself: the hook asks on which thread it runs.
TEST_F(Threads, OneThatIsCancelledHarmsNobodyElse) {
  add_source("good");
  slow_ninja();
  static thread_local bool is_stopped_one = false;
  std::atomic<bool> stop{false};
  Program program;
  program.cancelled = [&] { return is_stopped_one && stop; };
  const RuntimePtr runtime = this->runtime(&program);
  opdock_status first = OPDOCK_OK, second = OPDOCK_INTERNAL;
  std::thread builder([&] {
    is_stopped_one = true;
    first = resolve(runtime.get(), "good").status;
  });
  wait_for_build(1);
  std::thread waiter([&] { second = resolve(runtime.get(), "good").status; });
  std::this_thread::sleep_for(100ms);
  stop = true;
  builder.join();
  EXPECT_EQ(first, OPDOCK_CANCELLED);
  wait_for_build(2);  // the waiting thread took over the build
  top_.write("go", "");
  waiter.join();
  EXPECT_EQ(second, OPDOCK_OK);
  EXPECT_EQ(program.waits, 0);
}

TEST_F(Threads, OneThatWaitsMayLeave) {
  add_source("good");
  slow_ninja();
  static thread_local bool is_stopped_one = false;
  std::atomic<bool> stop{false};
  Program program;
  program.cancelled = [&] { return is_stopped_one && stop; };
  const RuntimePtr runtime = this->runtime(&program);
  opdock_status first = OPDOCK_INTERNAL, second = OPDOCK_OK;
  std::thread builder([&] { first = resolve(runtime.get(), "good").status; });
  wait_for_build(1);
  std::thread waiter([&] {
    is_stopped_one = true;
    second = resolve(runtime.get(), "good").status;
  });
  std::this_thread::sleep_for(50ms);
  stop = true;
  waiter.join();
  EXPECT_EQ(second, OPDOCK_CANCELLED);
  top_.write("go", "");
  builder.join();
  EXPECT_EQ(first, OPDOCK_OK);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(Threads, AFailureIsTheWaitingOnesToo) {
  add_source("good");
  tool("ninja",
       "echo build >> $TOP/builds; while [ ! -e $TOP/go ]; do /bin/sleep 0.02; done; exit 1");
  const RuntimePtr runtime = this->runtime();
  opdock_status first = OPDOCK_OK, second = OPDOCK_OK;
  std::thread builder([&] { first = resolve(runtime.get(), "good").status; });
  wait_for_build(1);
  std::thread waiter([&] { second = resolve(runtime.get(), "good").status; });
  std::this_thread::sleep_for(100ms);
  top_.write("go", "");
  builder.join();
  waiter.join();
  EXPECT_EQ(first, OPDOCK_INCOMPATIBLE);
  EXPECT_EQ(second, OPDOCK_INCOMPATIBLE);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(Threads, StoppingABuildLeavesNothingAndTheNextOneServes) {
  add_source("good");
  slow_ninja();
  Program program;
  program.cancelled = [&] { return fs::exists(path("builds")) && !fs::exists(path("go")); };
  const RuntimePtr runtime = this->runtime(&program);
  const Outcome stopped = resolve(runtime.get(), "good");
  EXPECT_EQ(stopped.status, OPDOCK_CANCELLED);
  EXPECT_NE(stopped.text.find("stopped on request"), std::string::npos);
  top_.write("go", "");
  EXPECT_EQ(resolve(runtime.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(builds(), 2u);
  EXPECT_EQ(program.told.back(), "");
}

TEST_F(Threads, TheReferenceDoesNotStandInForACancelledBuild) {
  add_source("good");
  slow_ninja();
  Program program;
  program.has_runner = true;
  program.references["good"] = OPDOCK_OK;
  program.cancelled = [&] { return true; };
  EXPECT_EQ(resolve(runtime(&program).get(), "good").status, OPDOCK_CANCELLED);
  EXPECT_TRUE(program.records.empty());
}

// Each rescan drops the previous catalogue, which another thread may still be reading.
TEST_F(Threads, ARescanLeavesReadersTheirCatalogue) {
  for (int i = 0; i < 20; ++i) {
    top_.add("good", "plugins/good_" + std::to_string(i) + ".so");
    add_source("source" + std::to_string(i));
  }
  const RuntimePtr runtime = this->runtime();
  mallopt(M_PERTURB, 0xA5);  // overwrites freed memory, so that a use of it shows
  std::atomic<bool> done{false};
  std::thread rescanning([&] {
    while (!done) {
      char* text = nullptr;
      EXPECT_EQ(opdock_list_json(runtime.get(), 1, &text, nullptr, 0), OPDOCK_OK);
      opdock_free(text);
    }
  });
  for (int i = 0; i < 500; ++i) {
    char* text = nullptr;
    std::array<char, 1000> error{};
    ASSERT_EQ(opdock_warm_json(runtime.get(), "gfx90a", 1, &text, error.data(), error.size()),
              OPDOCK_OK)
        << error.data();
    opdock_free(text);
    // An invalid list, so that nothing is built.
    ASSERT_EQ(opdock_build_json(runtime.get(), nullptr, R"({"cuda_archs": "no"})", &text,
                                error.data(), error.size()),
              OPDOCK_OK)
        << error.data();
    EXPECT_EQ(Json::parse(text).at("reasons").size(), 1u);
    opdock_free(text);
  }
  done = true;
  rescanning.join();
  mallopt(M_PERTURB, 0);
}

}  // namespace
}  // namespace opdock::testing
