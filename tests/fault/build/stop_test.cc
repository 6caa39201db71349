// Tests stopping a build and killing the building process: no process and no incomplete state stays
// behind, and the next attempt succeeds.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "build_fixture.h"

namespace opdock::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Starts children in their own process groups and sessions, as ninja does, some of which ignore
// SIGTERM.
constexpr char kBusy[] =
    "setsid sh -c \"trap '' TERM; sleep 61; true\" & (sleep 62 &) ; sleep 63 & touch $TOP/reached; "
    "sleep 64";

class Stop : public BuildFixture, public ::testing::WithParamInterface<const char*> {};

TEST_P(Stop, EndsBeforeItsChildrenWouldAndLeavesNothing) {
  const std::string name = GetParam(), good = read("bin/" + name);
  tool(name, kBusy);
  watcher.stop_when = top + "/reached";
  const auto begin = Clock::now();
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
  EXPECT_TRUE(failed_with(Code::kCancelled)) << text_of_reasons();
  EXPECT_TRUE(left_nothing());
  EXPECT_EQ(orphans(), std::vector<std::string>());
  watcher.stop_when.clear();
  tool(name, good.substr(good.find('\n', good.find("TOP=")) + 1));
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

INSTANTIATE_TEST_SUITE_P(At, Stop, ::testing::Values("c++", "cc", "meson", "ninja"),
                         [](const auto& row) {
                           const std::string name = row.param;
                           return name == "c++" ? std::string("cxx") : name;
                         });

class Stopped : public BuildFixture {};

TEST_F(Stopped, BeforeItBegan) {
  watcher.stop_at_once = true;
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kCancelled)) << text_of_reasons();
  EXPECT_TRUE(left_nothing());
  watcher.stop_at_once = false;
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

// A cache that reports which stage the builder has reached.
class TellingCache : public PlainCache {
 public:
  TellingCache(const std::string& folder, std::function<void(const char*)> reached)
      : PlainCache(folder), reached_(std::move(reached)) {}
  std::vector<std::shared_ptr<CacheEntry>> find(const CacheRequest& request,
                                                const CacheMaker* preferred,
                                                std::vector<Reason>* reasons) override {
    reached_("find");
    return PlainCache::find(request, preferred, reasons);
  }
  std::unique_ptr<CacheLock> lock(const CacheRequest& request, const CacheMaker& maker,
                                  Progress* progress, std::vector<Reason>* reasons) override {
    reached_("before lock");
    std::unique_ptr<CacheLock> held = PlainCache::lock(request, maker, progress, reasons);
    reached_("locked");
    return held;
  }
  std::optional<std::string> make_folder(std::vector<Reason>* reasons) override {
    std::optional<std::string> made = PlainCache::make_folder(reasons);
    reached_("folder made");
    return made;
  }
  std::shared_ptr<CacheEntry> publish_folder(const CacheRequest& request, const CacheMaker& maker,
                                             const std::string& folder,
                                             const std::vector<std::string>& files,
                                             std::vector<Reason>* reasons) override {
    reached_("before publishing");
    std::shared_ptr<CacheEntry> entry =
        PlainCache::publish_folder(request, maker, folder, files, reasons);
    reached_("published");
    return entry;
  }
  void discard_folder(const std::string& folder) override {
    reached_("before discarding");
    PlainCache::discard_folder(folder);
    reached_("discarded");
  }

 private:
  std::function<void(const char*)> reached_;
};

class TellingProgress : public Progress {
 public:
  explicit TellingProgress(std::function<void(const char*)> reached)
      : reached_(std::move(reached)) {}
  void step(std::string_view text, double) override {
    reached_(text.ends_with("configuring") ? "before copying" : "ninja's step");
  }
  bool cancelled() override { return false; }

 private:
  std::function<void(const char*)> reached_;
};

struct Stage {
  const char* name;  // test name
  // the stage at which the builder kills itself, or the tool during which the test kills it
  const char* at;
  bool is_tool = false;
};

const Stage kStages[] = {
    {"LookingForIt", "find"},
    {"BeforeTheLock", "before lock"},
    {"Locked", "locked"},
    {"FolderMade", "folder made"},
    {"BeforeCopying", "before copying"},
    {"NinjasStep", "ninja's step"},
    {"BeforePublishing", "before publishing"},
    {"Published", "published"},
    {"BeforeDiscarding", "before discarding"},
    {"Discarded", "discarded"},
    {"AskingTheCxxCompiler", "c++", true},
    {"AskingTheCCompiler", "cc", true},
    {"InMeson", "meson", true},
    {"InNinja", "ninja", true},
};

class Killed : public BuildFixture, public ::testing::WithParamInterface<Stage> {};

TEST_P(Killed, LeavesNoProcessAndTheNextAttemptSucceeds) {
  const Stage& stage = GetParam();
  const std::string good = stage.is_tool ? read("bin/" + std::string(stage.at)) : "";
  if (stage.is_tool) tool(stage.at, kBusy);
  const pid_t builder = fork();
  if (builder == 0) {
    const auto reached = [&](const char* where) {
      if (!stage.is_tool && std::string(where) == stage.at) kill(getpid(), SIGKILL);
    };
    TellingCache telling(top + "/cache", reached);
    TellingProgress progress(reached);
    std::vector<Reason> why;
    build_plugin(manifest(), options, &telling, &progress, &why);
    _exit(1);
  }
  if (stage.is_tool) {
    for (int i = 0; i < 400 && !std::filesystem::exists(top + "/reached"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    kill(builder, SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(builder, &status, 0), builder);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_EQ(orphans(), std::vector<std::string>());
  if (stage.is_tool) tool(stage.at, good.substr(good.find('\n', good.find("TOP=")) + 1));
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
}

INSTANTIATE_TEST_SUITE_P(Stages, Killed, ::testing::ValuesIn(kStages),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(Stopped, TheGuardIsKilled) {
  tool("ninja", "sh -c 'sleep 65; true' & touch $TOP/reached; kill -KILL $PPID; sleep 66");
  EXPECT_EQ(build().entry, nullptr);
  EXPECT_TRUE(failed_with(Code::kBuildMemory)) << text_of_reasons();
  EXPECT_TRUE(left_nothing());
  EXPECT_EQ(orphans(), std::vector<std::string>());
}

TEST_F(Stopped, ThreadsOfTheHostMayReapAllChildren) {
  std::atomic<bool> done{false};
  std::thread reaper([&] {
    while (!done) {
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_NE(build().entry, nullptr) << text_of_reasons();
  done = true;
  reaper.join();
}

TEST_F(Stopped, AHostThatIgnoresSignalsAndHasNoStandardStreams) {
  const pid_t host = fork();
  if (host == 0) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (const int fd : {0, 1, 2}) close(fd);
    _exit(build().entry == nullptr ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(host, &status, 0), host);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace opdock::testing
