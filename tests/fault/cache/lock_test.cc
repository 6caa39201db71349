// Tests locks whose holder dies, stops or forks, and file systems without locks.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "cache/locks.h"
#include "support.h"

extern char** environ;

namespace opdock::testing {
namespace {

// Ends a wait that a defect would make endless: it cancels after 30 s.
class DeadlineProgress final : public Progress {
 public:
  // polling: incremented once, when this wait first asks whether it is cancelled. May be NULL.
  explicit DeadlineProgress(std::atomic<int>* polling = nullptr) : polling_(polling) {}

  void step(std::string_view text, double) override { said_ = text; }
  bool cancelled() override {
    if (!is_polled_ && polling_ != nullptr) ++*polling_;
    is_polled_ = true;
    return (stop_at_word_ && !said_.empty()) || std::chrono::steady_clock::now() > end_;
  }
  void stop_at_word() { stop_at_word_ = true; }
  const std::string& said() const { return said_; }

 private:
  std::atomic<int>* polling_;
  bool is_polled_ = false;
  bool stop_at_word_ = false;
  std::string said_;
  std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
};

// A child that takes the lock of request(), runs `then`, reports that it is ready, and sleeps.
class Holder {
 public:
  explicit Holder(const CacheFolder& folder, const std::function<void()>& then = [] {}) {
    if (pipe(ready_) != 0) return;
    pid_ = start_child([&] {
      const auto cache = folder.open();
      const auto lock = cache->lock(request(), maker(), nullptr, nullptr);
      then();
      char byte = 'r';
      if (::write(ready_[1], &byte, 1) != 1) return 1;
      pause();
      return 0;
    });
    char byte = 0;
    is_ready_ = ::read(ready_[0], &byte, 1) == 1;
  }
  ~Holder() {
    end();
    close(ready_[0]);
    close(ready_[1]);
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    wait_for(pid_);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  bool is_ready() const { return is_ready_; }

 private:
  int ready_[2] = {-1, -1};
  pid_t pid_ = 0;
  bool is_ready_ = false;
};

TEST(Lock, IsFreeWhenItsHolderIsKilled) {
  CacheFolder folder;
  Holder holder(folder);
  ASSERT_TRUE(holder.is_ready());
  const auto cache = folder.open();
  std::thread killer([&] {
    usleep(50000);
    kill(holder.pid(), SIGKILL);
  });
  DeadlineProgress progress;
  std::vector<Reason> reasons;
  EXPECT_NE(cache->lock(request(), maker(), &progress, &reasons), nullptr) << text(reasons);
  killer.join();
  EXPECT_TRUE(reasons.empty()) << text(reasons);
}

TEST(Lock, IsFreeWhenItsHolderIsDeadAlready) {
  CacheFolder folder;
  Holder holder(folder);
  holder.end();
  DeadlineProgress progress;
  std::vector<Reason> reasons;
  EXPECT_NE(folder.open()->lock(request(), maker(), &progress, &reasons), nullptr);
  EXPECT_TRUE(progress.said().empty());
}

TEST(Lock, SaysForWhomItWaits) {
  CacheFolder folder;
  Holder holder(folder);
  ASSERT_TRUE(holder.is_ready());
  DeadlineProgress progress;
  progress.stop_at_word();
  std::vector<Reason> reasons;
  EXPECT_EQ(folder.open()->lock(request(), maker(), &progress, &reasons), nullptr);
  EXPECT_TRUE(has(reasons, Code::kCancelled)) << text(reasons);
  EXPECT_NE(progress.said().find("waiting for pid " + std::to_string(holder.pid())),
            std::string::npos)
      << progress.said();
  EXPECT_NE(progress.said().find("on host "), std::string::npos);
  EXPECT_NE(progress.said().find("which makes axpy for sm_90a"), std::string::npos);
  EXPECT_EQ(progress.said().find("stopped"), std::string::npos);
}

TEST(Lock, SaysThatItsHolderIsStopped) {
  CacheFolder folder;
  Holder holder(folder);
  ASSERT_TRUE(holder.is_ready());
  kill(holder.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(holder.pid(), &status, WUNTRACED), holder.pid());
  DeadlineProgress progress;
  progress.stop_at_word();
  std::vector<Reason> reasons;
  EXPECT_EQ(folder.open()->lock(request(), maker(), &progress, &reasons), nullptr);
  EXPECT_TRUE(has(reasons, Code::kCancelled)) << text(reasons);
  EXPECT_NE(progress.said().find("it is stopped"), std::string::npos) << progress.said();
  // Killing the stopped holder frees the lock for the next attempt.
  holder.end();
  EXPECT_NE(folder.open()->lock(request(), maker(), nullptr, &reasons), nullptr);
}

TEST(Lock, AStoppedHolderHoldsUpNobodyElse) {
  CacheFolder folder;
  Holder holder(folder);
  kill(holder.pid(), SIGSTOP);
  std::vector<Reason> reasons;
  const auto cache = folder.open();
  EXPECT_NE(cache->lock(request("another"), maker(), nullptr, &reasons), nullptr);
  EXPECT_NE(cache->lock(request(), maker("fedcba9876543210"), nullptr, &reasons), nullptr);
  EXPECT_NE(cache->publish_blobs(request(), maker(), blobs(), &reasons), nullptr);
  EXPECT_EQ(cache->find(request(), nullptr, &reasons).size(), 1u);
  evict_now(folder, UINT64_MAX);
  EXPECT_TRUE(reasons.empty()) << text(reasons);
}

TEST(Lock, RubbishInItsFileIsNoHarm) {
  CacheFolder folder;
  Holder holder(folder);
  ASSERT_EQ(folder.list("locks").size(), 1u);
  for (const std::string& rubbish : {std::string(), std::string("\x1b[2J\0\xff", 6),
                                     std::string(1 << 16, '9'), std::string("99 host")}) {
    write(folder.path("cache/v1/locks/" + folder.list("locks")[0]), rubbish);
    DeadlineProgress progress;
    progress.stop_at_word();
    EXPECT_EQ(folder.open()->lock(request(), maker(), &progress, nullptr), nullptr);
    EXPECT_EQ(progress.said().find('\x1b'), std::string::npos);
    EXPECT_NE(progress.said().find("waiting for"), std::string::npos);
  }
}

TEST(Lock, RemovedFromUnderItsHolderIsTakenAnew) {
  CacheFolder folder;
  const auto cache = folder.open();
  const auto first = cache->lock(request(), maker(), nullptr, nullptr);
  ASSERT_EQ(folder.list("locks").size(), 1u);
  unlink(folder.path("cache/v1/locks/" + folder.list("locks")[0]).c_str());
  DeadlineProgress progress;
  EXPECT_NE(cache->lock(request(), maker(), &progress, nullptr), nullptr);
}

// Between opening and locking the lock file, another process may have removed it in a sweep, and a
// third may have created it anew.
TEST(Lock, OfAFileThatWasSweptBeforeItWasLockedIsNone) {
  CacheFolder folder;
  const std::string path = folder.path("lock");
  cache::LockFile first, second;
  ASSERT_EQ(first.open(path), 0);
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(second.open(path), 0);
  EXPECT_EQ(first.try_lock(), ESTALE);
  EXPECT_EQ(second.try_lock(), 0);
  ASSERT_EQ(first.open(path), 0);
  EXPECT_EQ(first.try_lock(), EWOULDBLOCK);
}

// A forked child has a copy of every descriptor, but it must not keep the lock alive.
TEST(Lock, DiesWithItsHolderAlthoughAChildLivesOn) {
  CacheFolder folder;
  int pids[2];
  ASSERT_EQ(pipe(pids), 0);
  Holder holder(folder, [&] {
    const pid_t child = start_child([] {
      for (;;) pause();
      return 0;
    });
    if (::write(pids[1], &child, sizeof child) != sizeof child) abort();
  });
  pid_t child = 0;
  ASSERT_EQ(::read(pids[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  holder.end();
  ASSERT_EQ(kill(child, 0), 0);
  DeadlineProgress progress;
  std::vector<Reason> reasons;
  EXPECT_NE(folder.open()->lock(request(), maker(), &progress, &reasons), nullptr) << text(reasons);
  kill(child, SIGKILL);
  close(pids[0]);
  close(pids[1]);
}

TEST(Lock, AForkedChildDoesNotReleaseItsParents) {
  CacheFolder folder;
  const auto cache = folder.open();
  auto lock = cache->lock(request(), maker(), nullptr, nullptr);
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(in_child([&] {
              lock.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(in_child([&] {
              DeadlineProgress progress;
              progress.stop_at_word();
              return folder.open()->lock(request(), maker(), &progress, nullptr) == nullptr ? 5 : 6;
            }),
            5);
}

TEST(Lock, IsClosedInAStartedProgram) {
  CacheFolder folder;
  const auto cache = folder.open();
  auto lock = cache->lock(request(), maker(), nullptr, nullptr);
  pid_t child = 0;
  const char* const arguments[] = {"sleep", "60", nullptr};
  ASSERT_EQ(posix_spawnp(&child, "sleep", nullptr, nullptr, const_cast<char**>(arguments), environ),
            0);
  lock.reset();
  DeadlineProgress progress;
  EXPECT_NE(cache->lock(request(), maker(), &progress, nullptr), nullptr);
  kill(child, SIGKILL);
  wait_for(child);
}

TEST(Lock, AChildDoesNotRemoveItsParentsFolder) {
  CacheFolder folder;
  auto cache = folder.open();
  const auto made = cache->make_folder(nullptr);
  ASSERT_TRUE(made);
  EXPECT_EQ(in_child([&] {
              cache.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(access(made->c_str(), F_OK), 0);
  cache.reset();
  EXPECT_NE(access(made->c_str(), F_OK), 0);
}

// ---- file systems without locks

class NoLocks : public ::testing::TestWithParam<int> {};

TEST_P(NoLocks, GoesOnUnlocked) {
  CacheFolder folder;
  std::vector<Reason> reasons;
  arm(folder.path("cache"), {"flock", 0, Fault::kFail, GetParam()});
  const auto cache = folder.open();
  EXPECT_NE(cache->lock(request(), maker(), nullptr, &reasons), nullptr);
  EXPECT_TRUE(has(reasons, Code::kCacheLock)) << text(reasons);
  const auto first = cache->publish_blobs(request(), maker(), blobs(), &reasons);
  ASSERT_NE(first, nullptr);
  // Another process made it at the same time: the second is dropped, and its maker gets the first.
  const auto second = cache->publish_blobs(request(), maker(), {{"image", "other"}}, &reasons);
  ASSERT_NE(second, nullptr);
  expect_whole(*second);
  EXPECT_NE(publish_plugin(cache.get(), &reasons), nullptr) << text(reasons);
  EXPECT_TRUE(folder.temp().empty());
  // Without locks, an entry that was used within the last day may be in use somewhere.
  evict_now(folder, 0);
  EXPECT_EQ(cache->find(request(), nullptr, nullptr).size(), 1u);
  make_older(first->path(), 7200);
  evict_now(folder, 0);
  EXPECT_EQ(cache->find(request(), nullptr, nullptr).size(), 1u);
  make_older(first->path(), 2 * 86400);
  evict_now(folder, 0);
  EXPECT_EQ(cache->find(request(), nullptr, nullptr).size(), 0u);
  disarm();
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

INSTANTIATE_TEST_SUITE_P(Errors, NoLocks, ::testing::Values(ENOLCK, ENOSYS, EOPNOTSUPP, EIO));

// Publishing works without renameat2's flag, as on NFS, and needs no hard links either.
class OtherRenames : public ::testing::TestWithParam<int> {};

TEST_P(OtherRenames, PublishOnce) {
  CacheFolder folder;
  std::vector<Reason> reasons;
  const auto cache = folder.open();
  arm(folder.path("cache"), {"renameat2", 0, Fault::kFail, GetParam()});
  ASSERT_NE(cache->publish_blobs(request(), maker(), blobs(), &reasons), nullptr) << text(reasons);
  const auto second = cache->publish_blobs(request(), maker(), {{"image", "other"}}, &reasons);
  ASSERT_NE(second, nullptr);
  expect_whole(*second);
  const auto plugin = publish_plugin(cache.get(), &reasons);
  ASSERT_NE(plugin, nullptr) << text(reasons);
  const auto again = publish_plugin(cache.get(), &reasons);
  ASSERT_NE(again, nullptr) << text(reasons);
  EXPECT_EQ(again->created(), plugin->created());
  disarm();
  EXPECT_TRUE(folder.temp().empty());
  EXPECT_TRUE(reasons.empty()) << text(reasons);
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

INSTANTIATE_TEST_SUITE_P(Errors, OtherRenames, ::testing::Values(EINVAL, ENOSYS, EOPNOTSUPP));

// ---- many ask at once

TEST(Once, SixteenThreads) {
  CacheFolder folder;
  const auto cache = folder.open();
  std::atomic<int> made{0}, good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      int mine = 0;
      std::vector<Reason> reasons;
      const auto entry = ask(cache.get(), &mine, &reasons, [] { usleep(30000); });
      made += mine;
      good += entry != nullptr && reasons.empty();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(good, 16);
}

int make_count(const std::string& log) {
  return static_cast<int>(read(log).size());
}

// `count` processes ask for the same thing; each process that makes it appends a byte to a file.
void ask_from_processes(const CacheFolder& folder, int count, const std::function<void()>& make) {
  const std::string log = folder.path("made");
  int start[2];
  ASSERT_EQ(pipe(start), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(start_child([&] {
      close(start[1]);
      char byte = 0;
      if (::read(start[0], &byte, 1) != 0) return 1;  // all start when the pipe is closed
      const auto cache = folder.open();
      int made = 0;
      std::vector<Reason> reasons;
      const auto entry = ask(cache.get(), &made, &reasons, [&] {
        const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (::write(fd, "x", 1) != 1) _exit(3);
        make();
      });
      return entry != nullptr && reasons.empty() ? 0 : 2;
    }));
  }
  close(start[0]);
  close(start[1]);
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
}

TEST(Once, ThirtyTwoProcesses) {
  CacheFolder folder;
  ask_from_processes(folder, 32, [] { usleep(30000); });
  EXPECT_EQ(make_count(folder.path("made")), 1);
  publish_unrelated_entry(folder);
  expect_cache_usable(folder);
}

TEST(Once, MoreWhereTheFirstIsKilled) {
  CacheFolder folder;
  const std::string first = folder.path("first");
  const std::string log = folder.path("made");
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    children.push_back(start_child([&] {
      const auto cache = folder.open();
      int made = 0;
      const auto entry = ask(cache.get(), &made, nullptr, [&] {
        const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (::write(fd, "x", 1) != 1) _exit(3);
        if (mkdir(first.c_str(), 0700) == 0) raise(SIGKILL);
        usleep(30000);
      });
      return entry != nullptr ? 0 : 2;
    }));
  }
  int killed = 0;
  for (const pid_t child : children) {
    const int status = wait_for(child);
    killed += status == -SIGKILL;
    EXPECT_TRUE(status == 0 || status == -SIGKILL) << status;
  }
  EXPECT_EQ(killed, 1);
  EXPECT_EQ(make_count(log), 2);
}

TEST(Once, AllLearnOfAFailure) {
  CacheFolder folder;
  const auto cache = folder.open();
  auto lock = cache->lock(request(), maker(), nullptr, nullptr);
  std::vector<std::thread> threads;
  std::atomic<int> polling{0}, learned{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      DeadlineProgress progress(&polling);
      const auto mine = cache->lock(request(), maker(), &progress, nullptr);
      learned += mine != nullptr && !mine->is_turn() &&
                 cache->failure(request(), maker(), nullptr).has_value();
    });
  }
  while (polling < 8) usleep(1000);
  cache->remember_failure(request(), maker(), {make_reason(Code::kCacheLock, "x", "y")}, "log");
  for (std::thread& thread : threads) thread.join();  // they return although the lock is still held
  EXPECT_EQ(learned, 8);
  // A caller that cannot use the remembered failure asks again and waits as before.
  DeadlineProgress progress;
  progress.stop_at_word();
  EXPECT_EQ(cache->lock(request(), maker(), &progress, nullptr), nullptr);
  lock.reset();
  lock = cache->lock(request(), maker(), &progress, nullptr);
  ASSERT_NE(lock, nullptr);
  EXPECT_TRUE(lock->is_turn());
}

}  // namespace
}  // namespace opdock::testing
