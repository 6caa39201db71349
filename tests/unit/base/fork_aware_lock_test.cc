// Tests fork-aware locks (Mutex, ForkAwareLock), between threads and across forks.
// SPDX-License-Identifier: Apache-2.0
#include "base/fork_aware_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace opdock {
namespace {

using namespace std::chrono_literals;

// Runs `work` in a child and returns its wait status; SIGALRM ends a child that hangs.
int in_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(ForkAwareLockTest, IsOneThreadsAtATime) {
  ForkAwareLock lock;
  int inside = 0, most = 0, sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        const ForkAwareGuard guard(&lock);
        most = std::max(most, ++inside);
        ++sum;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(sum, 4000);
}

TEST(ForkAwareLockTest, IsNotWaitedForByItsOwnThread) {
  ForkAwareLock lock;
  {
    const ForkAwareGuard outer(&lock);
    ASSERT_TRUE(outer);
    const ForkAwareGuard inner(&lock);
    EXPECT_FALSE(inner);
    EXPECT_TRUE(inner.would_deadlock());
    EXPECT_TRUE(lock.would_deadlock());
  }
  EXPECT_FALSE(lock.would_deadlock());
  EXPECT_TRUE(ForkAwareGuard(&lock));
}

TEST(ForkAwareLockTest, WaitsAreStoppedOnRequest) {
  ForkAwareLock lock;
  const ForkAwareGuard outer(&lock);
  bool stopped = false;
  std::thread([&] { stopped = ForkAwareGuard(&lock, [] { return true; }).was_cancelled(); }).join();
  EXPECT_TRUE(stopped);
}

// Each of three threads holds one lock and wants the next one's: the last to ask gets an error, and
// the others are served.
TEST(ForkAwareLockTest, AreNotWaitedForInACircle) {
  ForkAwareLock locks[3];
  std::latch all(3);
  std::atomic<int> told{0}, served{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const ForkAwareGuard own(&locks[i]);
      all.arrive_and_wait();
      const ForkAwareGuard next(&locks[(i + 1) % 3]);
      ++(next.would_deadlock() ? told : served);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(served, 2);
}

TEST(ForkAwareLockTest, HelpersDoNotWaitForTheirMaster) {
  ForkAwareLock masters, free_one;
  const ForkAwareGuard guard(&masters);
  bool is_told = false, is_served = false;
  std::atomic<uint32_t> number{0};
  std::thread helper([&] {
    number = WaitForHelpersScope::number();
    is_told = ForkAwareGuard(&masters).would_deadlock();
    is_served = static_cast<bool>(ForkAwareGuard(&free_one));
  });
  while (number == 0) std::this_thread::sleep_for(1ms);
  {
    const WaitForHelpersScope awaiting({number});
    helper.join();
  }
  EXPECT_TRUE(is_told);
  EXPECT_TRUE(is_served);
}

TEST(ForkAwareLockTest, HelpersWaitForAMasterThatIsAtWork) {
  ForkAwareLock masters;
  bool is_served = false;
  std::thread helper;
  {
    const ForkAwareGuard guard(&masters);
    helper = std::thread([&] { is_served = static_cast<bool>(ForkAwareGuard(&masters)); });
    std::this_thread::sleep_for(120ms);  // long enough for the helper to ask more than once
  }
  helper.join();
  EXPECT_TRUE(is_served);
}

TEST(ForkAwareLockTest, OfAThreadThatTheChildDoesNotHaveIsLeft) {
  ForkAwareLock lock, own;
  std::atomic<bool> is_taken{false}, leave{false};
  std::thread holder([&] {
    const ForkAwareGuard guard(&lock);
    is_taken = true;
    while (!leave) std::this_thread::sleep_for(1ms);
  });
  while (!is_taken) std::this_thread::sleep_for(1ms);
  const ForkAwareGuard mine(&own);
  EXPECT_EQ(in_child([&] {
              if (!ForkAwareGuard(&own).would_deadlock())
                return false;  // the forking thread exists in the child
              {
                const ForkAwareGuard guard(&lock);
                if (!guard || !guard.was_poisoned()) return false;
              }
              const ForkAwareGuard again(&lock);  // the first acquirer repaired the state
              return again && !again.was_poisoned();
            }),
            0);
  EXPECT_EQ(in_child([&] {
              if (lock.lock() != ForkAwareLock::Acquire::kPoisoned) return false;
              lock.unlock_poisoned();
              if (lock.lock() != ForkAwareLock::Acquire::kPoisoned) return false;
              lock.unlock_poisoned();
              // A grandchild sees the same state.
              return in_child([&] { return lock.lock() == ForkAwareLock::Acquire::kPoisoned; }) ==
                     0;
            }),
            0);
  leave = true;
  holder.join();
  EXPECT_EQ(
      in_child([&] { return ForkAwareGuard(&lock) && !ForkAwareGuard(&lock).was_poisoned(); }), 0);
}

TEST(NoForkTest, WhatAMutexGuardsIsWholeInAChild) {
  Mutex mutex;
  int first = 0, second = 0;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const std::lock_guard lock(mutex);
        ++first;
        const NoFork nested;
        std::this_thread::yield();
        ++second;
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(in_child([&] {
                const std::lock_guard lock(mutex);
                return first == second;
              }),
              0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(NoForkTest, ForksAreCountedInTheChildAlone) {
  const uint32_t before = forks();
  EXPECT_EQ(in_child([&] {
              return forks() == before + 1 && in_child([&] { return forks() == before + 2; }) == 0;
            }),
            0);
  EXPECT_EQ(forks(), before);
}

// Several threads that fork at once delay each other only for the time of a fork.
TEST(NoForkTest, ThreadsMayForkAtOnce) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        good += in_child([] { return (NoFork(), true); }) == 0 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 40);
}

}  // namespace
}  // namespace opdock
