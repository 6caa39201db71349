// Kills the builder, or makes a call fail, at every stage: before the Nth call that changes the
// cache's folder, or with the Nth call failing as on a full or broken disk.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "build_fixture.h"
#include "cache_folder.h"
#include "faults.h"

namespace opdock::testing {
namespace {

constexpr int kPoints = 24;  // points of each sweep, spread evenly over all calls

class Sweep : public BuildFixture {
 protected:
  BuildResult ask(const CacheFolder& folder) {
    cache_reasons_.clear();
    cache_ = folder.open(&cache_reasons_);
    BuildResult result = build(cache_.get());
    cache_reasons_.insert(cache_reasons_.end(), reasons.begin(), reasons.end());
    return result;
  }

  // Returns how many such calls a good build makes.
  int count_calls() {
    const CacheFolder folder;
    arm(folder.path("cache"), {});
    EXPECT_NE(ask(folder).entry, nullptr) << text_of_reasons();
    return static_cast<int>(disarm().size());
  }

  // Calls `at` for points spread evenly over the calls of a good build.
  template <class F>
  void at_points(F&& at) {
    const int calls = count_calls();
    ASSERT_GE(calls, 12);
    for (int point = 0; point < kPoints; ++point) {
      at(1 + point * (calls - 1) / (kPoints - 1), point);
    }
  }

  std::unique_ptr<Cache> cache_;
  std::vector<Reason> cache_reasons_;
};

TEST_F(Sweep, KilledAtEachStage) {
  at_points([&](int nth, int) {
    SCOPED_TRACE("killed before call " + std::to_string(nth));
    const CacheFolder folder;
    const pid_t builder = fork();
    if (builder == 0) {
      arm(folder.path("cache"), {"", nth, Fault::kKillBefore, 0});
      ask(folder);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(builder, &status, 0), builder);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    EXPECT_EQ(orphans(), std::vector<std::string>());
    EXPECT_NE(ask(folder).entry, nullptr) << text_of_reasons();
  });
}

TEST_F(Sweep, CallsThatFail) {
  constexpr int kErrors[] = {ENOSPC, EIO, EDQUOT};
  at_points([&](int nth, int point) {
    const int error = kErrors[point % 3];
    SCOPED_TRACE(std::string(strerror(error)) + " from call " + std::to_string(nth));
    const CacheFolder folder;
    arm(folder.path("cache"), {"", nth, Fault::kFail, error});
    const BuildResult result = ask(folder);
    disarm();
    EXPECT_TRUE(result.entry != nullptr || !cache_reasons_.empty());
    if (result.entry != nullptr) {
      EXPECT_TRUE(std::filesystem::exists(result.plugin));
    }
    options.retry_failed = false;
    EXPECT_NE(ask(folder).entry, nullptr) << text_of_reasons();
    EXPECT_EQ(orphans(), std::vector<std::string>());
  });
}

TEST_F(Sweep, CallsThatAllFail) {
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    const CacheFolder folder;
    arm(folder.path("cache"), {"", 0, Fault::kFail, error});
    EXPECT_EQ(ask(folder).entry, nullptr);
    disarm();
    EXPECT_FALSE(cache_reasons_.empty());
    EXPECT_NE(ask(folder).entry, nullptr) << text_of_reasons();
  }
}

}  // namespace
}  // namespace opdock::testing
