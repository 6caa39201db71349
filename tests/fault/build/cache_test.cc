// Tests the builder with the real cache: many processes at once, the death of the building process,
// what a later process finds, and file systems that refuse writes.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "build_fixture.h"
#include "cache_folder.h"

namespace opdock::testing {
namespace {

using Clock = std::chrono::steady_clock;

class Shared : public BuildFixture {
 protected:
  // Starts a process that asks for the plugin. Exit status: 0 has it, 1 does not, 2 built it
  // itself.
  pid_t start_asking() {
    const pid_t child = fork();
    if (child != 0) return child;
    std::vector<Reason> why;
    const std::unique_ptr<Cache> own = folder_.open(&why);
    const BuildResult result = build(own.get());
    _exit(result.entry == nullptr ? 1 : result.built ? 2 : 0);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool wait_until(const std::function<bool()>& reached) {
    for (int i = 0; i < 400 && !reached(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return reached();
  }
  BuildResult ask() {
    reasons_of_cache_.clear();
    cache_ = folder_.open(&reasons_of_cache_);
    return build(cache_.get());
  }

  CacheFolder folder_;
  std::unique_ptr<Cache> cache_;
  std::vector<Reason> reasons_of_cache_;
};

TEST_F(Shared, TwelveProcessesColdMakeOneBuild) {
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i) children.push_back(start_asking());
  int built = 0;
  for (const pid_t child : children) {
    const int status = wait_for(child);
    EXPECT_TRUE(status == 0 || status == 2) << status;
    built += status == 2;
  }
  EXPECT_EQ(built, 1);
  EXPECT_EQ(lines("builds"), 1u);
  EXPECT_TRUE(folder_.temp().empty());
}

TEST_F(Shared, TwoPluginsAtOnceAreBuiltBoth) {
  // Each build waits after its start until both have started.
  const std::string good = read("bin/ninja");
  const std::string begun = "echo build >> $TOP/builds;";
  const size_t rest = good.find(begun) + begun.size();
  tool("ninja", begun + "while ! [ -e $TOP/go ]; do sleep 0.01; done;" + good.substr(rest));
  const pid_t first = start_asking();
  ASSERT_TRUE(wait_until([&] { return lines("builds") == 1; }));
  write("source/noop.cc", "int another;\n");
  const pid_t second = start_asking();
  EXPECT_TRUE(wait_until([&] { return lines("builds") == 2; }));
  write("go", "");
  EXPECT_EQ(wait_for(first), 2);
  EXPECT_EQ(wait_for(second), 2);
  EXPECT_EQ(lines("builds"), 2u);
}

TEST_F(Shared, KilledBuilderLetsTheOthersGoOn) {
  const std::string good = read("bin/ninja");
  // The first build hangs.
  tool("ninja", "if mkdir $TOP/first 2>/dev/null; then sleep 67; fi\n" +
                    good.substr(good.find('\n', good.find("TOP=")) + 1));
  const pid_t builder = start_asking();
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(top + "/first"); }));
  std::vector<pid_t> others;
  for (int i = 0; i < 3; ++i) others.push_back(start_asking());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(builder, SIGKILL);
  const auto killed = Clock::now();
  EXPECT_EQ(wait_for(builder), -SIGKILL);
  int built = 0;
  for (const pid_t other : others) {
    const int status = wait_for(other);
    EXPECT_TRUE(status == 0 || status == 2) << status;
    built += status == 2;
  }
  EXPECT_EQ(built, 1);
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(20));
  EXPECT_EQ(orphans(), std::vector<std::string>());
  EXPECT_FALSE(ask().built);
}

// Eight processes: seven are known to wait for the first when it fails for a temporary reason, such
// as a tool that is killed for lack of memory.
class EightWaitingProcesses : public Shared {
 protected:
  // body: what ninja does from the second build on.
  void ask_after_a_kill(const std::string& body) {
    tool("ninja",
         "echo build >> $TOP/builds\n"
         "mkdir $TOP/busy || echo overlap >> $TOP/overlaps\n"
         "if mkdir $TOP/first 2>/dev/null; then\n"
         "  while ! [ -e $TOP/go ]; do sleep 0.01; done; rmdir $TOP/busy; kill -KILL $$\n"
         "fi\nsleep 1; rmdir $TOP/busy\n" +
             body);
    children_.push_back(start_asking(0));
    ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(top + "/first"); }));
    for (int i = 1; i < 8; ++i) children_.push_back(start_asking(i));
    for (int i = 1; i < 8; ++i)
      ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(waits(i)); })) << i;
    write("go", "");
    for (const pid_t child : children_) ends_.push_back(wait_for(child));
    EXPECT_FALSE(std::filesystem::exists(top + "/overlaps"));
    EXPECT_EQ(orphans(), std::vector<std::string>());
  }
  std::string told(int child) const { return read("told" + std::to_string(child)); }

  std::vector<pid_t> children_;
  std::vector<int> ends_;

 private:
  std::string waits(int child) const { return top + "/waits" + std::to_string(child); }
  pid_t start_asking(int number) {
    const pid_t child = fork();
    if (child != 0) return child;
    class Teller : public Progress {
     public:
      explicit Teller(std::string path) : path_(std::move(path)) {}
      void step(std::string_view text, double) override {
        if (text.starts_with("waiting for")) std::ofstream(path_) << text;
      }
      bool cancelled() override { return false; }

     private:
      const std::string path_;
    } teller(waits(number));
    std::vector<Reason> why;
    const std::unique_ptr<Cache> own = folder_.open(&why);
    const BuildResult result = build_plugin(manifest(), options, own.get(), &teller, &why);
    std::string text;
    for (const Reason& reason : why) text += to_text(reason) + "\n";
    write("told" + std::to_string(number), text);
    _exit(result.entry == nullptr ? 1 : result.built ? 2 : 0);
  }
};

TEST_F(EightWaitingProcesses, AFailureThatMayPassIsTriedAgainByOneOfThem) {
  const std::string good = read("bin/ninja");
  ask_after_a_kill(good.substr(good.find("mkdir")));
  EXPECT_EQ(lines("builds"), 2u);
  ASSERT_EQ(ends_.size(), 8u);
  EXPECT_EQ(ends_[0], 1);
  EXPECT_NE(told(0).find("build-memory"), std::string::npos) << told(0);
  EXPECT_EQ(std::count(ends_.begin(), ends_.end(), 2), 1);
  EXPECT_EQ(std::count(ends_.begin(), ends_.end(), 0), 6);
}

TEST_F(EightWaitingProcesses, AfterTwoSuchFailuresAllAreToldOfThem) {
  ask_after_a_kill("kill -KILL $$");
  EXPECT_EQ(lines("builds"), 2u);
  ASSERT_EQ(std::count(ends_.begin(), ends_.end(), 1), 8);
  int waited = 0;
  for (int i = 0; i < 8; ++i) {
    EXPECT_NE(told(i).find("build-memory: ninja was killed by signal 9"), std::string::npos)
        << i << told(i);
    waited += told(i).find("build-waited") != std::string::npos;
  }
  EXPECT_EQ(waited, 6);
  // A later request builds again.
  EXPECT_EQ(ask().entry, nullptr);
  EXPECT_EQ(lines("builds"), 3u);
}

// The wait for another process's build counts towards the build's time limit.
TEST_F(Shared, WaitingEndsWithTheBuildsTime) {
  tool("ninja", "touch $TOP/reached; sleep 68");
  const pid_t builder = start_asking();
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(top + "/reached"); }));
  // includes reading the sources and asking the tools for their versions
  options.timeout_seconds = 3;
  EXPECT_EQ(ask().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildTimeout)) << text_of_reasons();
  EXPECT_NE(text_of_reasons().find("another process was still building it"), std::string::npos)
      << text_of_reasons();
  kill(builder, SIGKILL);
  wait_for(builder);
}

TEST_F(Shared, ALaterProcessFindsTheResultItsLogAndItsMaker) {
  EXPECT_TRUE(ask().built);
  const BuildResult again = ask();
  EXPECT_FALSE(again.built);
  ASSERT_NE(again.entry, nullptr);
  EXPECT_EQ(again.entry->maker().text, "c++ 1.2.3, cc 1.2.3");
  EXPECT_EQ(again.entry->subject(), "noop");
  EXPECT_TRUE(std::filesystem::exists(again.plugin));
  EXPECT_NE(opdock::testing::read(again.log_path).find("[2/2] two"), std::string::npos);
}

TEST_F(Shared, ALaterProcessIsToldOfTheFailureWithoutBuilding) {
  tool("ninja", "echo build >> $TOP/builds; echo 'noop.cc:1:5: error: no'; exit 1");
  const BuildResult first = ask();
  EXPECT_NE(opdock::testing::read(first.log_path).find("error: no"), std::string::npos);
  const BuildResult second = ask();
  EXPECT_EQ(second.entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildRemembered)) << text_of_reasons();
  EXPECT_TRUE(failed_with(Code::kBuildFailed)) << text_of_reasons();
  EXPECT_EQ(lines("builds"), 1u);
  EXPECT_EQ(second.log_path, first.log_path);
}

TEST_F(Shared, WhatChangedIsNamed) {
  EXPECT_TRUE(ask().built);
  write("source/noop.cc", "int another;\n");
  options.cuda_archs = "9.0";
  std::string changed;
  for (const std::string& one : cache_->what_changed(*build_request(manifest(), options))) {
    changed += one + "\n";
  }
  EXPECT_NE(changed.find("source noop.cc"), std::string::npos) << changed;
  EXPECT_NE(changed.find("CUDA architectures"), std::string::npos) << changed;
}

TEST_F(Shared, ACacheThatCannotBeUsedIsNamed) {
  for (const std::string& path : {std::string(), top + "/source/noop.cc", top + "/open"}) {
    std::filesystem::create_directories(top + "/open");
    std::filesystem::permissions(top + "/open", std::filesystem::perms::all);
    std::vector<Reason> why;
    CacheOptions where;
    where.folder = path;
    const std::unique_ptr<Cache> none = Cache::open(where, &why);
    EXPECT_EQ(build(none.get()).entry, nullptr);
    EXPECT_FALSE(reasons.empty()) << path;
    EXPECT_EQ(lines("builds"), 0u);
  }
}

// Neither the builder nor its tools can write beyond the file size limit.
TEST_F(Shared, FilesThatCannotGrowGiveAReasonAndNoHalfEntry) {
  for (const rlim_t limit : {0, 100, 1000, 3000, 10000, 30000}) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit most{limit, limit};
      signal(SIGXFSZ, SIG_IGN);
      setrlimit(RLIMIT_FSIZE, &most);
      const BuildResult result = ask();
      _exit(result.entry != nullptr || !reasons.empty() || !reasons_of_cache_.empty() ? 0 : 1);
    }
    EXPECT_EQ(wait_for(child), 0) << limit;
  }
  options.retry_failed = true;
  EXPECT_NE(ask().entry, nullptr) << text_of_reasons();
}

}  // namespace
}  // namespace opdock::testing
