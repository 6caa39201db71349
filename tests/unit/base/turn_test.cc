// Tests fork-aware locks (Mutex, Turn), between threads and across forks.
// SPDX-License-Identifier: Apache-2.0
#include "base/turn.h"

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

TEST(TurnTest, IsOneThreadsAtATime) {
  Turn turn;
  int inside = 0, most = 0, sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        const Taken taken(&turn);
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

TEST(TurnTest, IsNotWaitedForByItsOwnThread) {
  Turn turn;
  {
    const Taken outer(&turn);
    ASSERT_TRUE(outer);
    const Taken inner(&turn);
    EXPECT_FALSE(inner);
    EXPECT_TRUE(inner.is_ours());
    EXPECT_TRUE(turn.is_ours());
  }
  EXPECT_FALSE(turn.is_ours());
  EXPECT_TRUE(Taken(&turn));
}

TEST(TurnTest, WaitsAreStoppedOnRequest) {
  Turn turn;
  const Taken outer(&turn);
  bool stopped = false;
  std::thread([&] { stopped = Taken(&turn, [] { return true; }).was_stopped(); }).join();
  EXPECT_TRUE(stopped);
}

// Each of three threads holds one lock and wants the next one's: the last to ask gets an error, and
// the others are served.
TEST(TurnTest, AreNotWaitedForInACircle) {
  Turn turns[3];
  std::latch all(3);
  std::atomic<int> told{0}, served{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const Taken own(&turns[i]);
      all.arrive_and_wait();
      const Taken next(&turns[(i + 1) % 3]);
      ++(next.is_ours() ? told : served);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(served, 2);
}

TEST(TurnTest, HelpersDoNotWaitForTheirMaster) {
  Turn masters, free_one;
  const Taken taken(&masters);
  bool is_told = false, is_served = false;
  std::atomic<uint32_t> number{0};
  std::thread helper([&] {
    number = AwaitingHelpers::number();
    is_told = Taken(&masters).is_ours();
    is_served = static_cast<bool>(Taken(&free_one));
  });
  while (number == 0) std::this_thread::sleep_for(1ms);
  {
    const AwaitingHelpers awaiting({number});
    helper.join();
  }
  EXPECT_TRUE(is_told);
  EXPECT_TRUE(is_served);
}

TEST(TurnTest, HelpersWaitForAMasterThatIsAtWork) {
  Turn masters;
  bool is_served = false;
  std::thread helper;
  {
    const Taken taken(&masters);
    helper = std::thread([&] { is_served = static_cast<bool>(Taken(&masters)); });
    std::this_thread::sleep_for(120ms);  // long enough for the helper to ask more than once
  }
  helper.join();
  EXPECT_TRUE(is_served);
}

TEST(TurnTest, OfAThreadThatTheChildDoesNotHaveIsLeft) {
  Turn turn, own;
  std::atomic<bool> is_taken{false}, leave{false};
  std::thread holder([&] {
    const Taken taken(&turn);
    is_taken = true;
    while (!leave) std::this_thread::sleep_for(1ms);
  });
  while (!is_taken) std::this_thread::sleep_for(1ms);
  const Taken mine(&own);
  EXPECT_EQ(in_child([&] {
              if (!Taken(&own).is_ours()) return false;  // the forking thread exists in the child
              {
                const Taken taken(&turn);
                if (!taken || !taken.was_left()) return false;
              }
              const Taken again(&turn);  // the first acquirer repaired the state
              return again && !again.was_left();
            }),
            0);
  EXPECT_EQ(in_child([&] {
              if (turn.take() != Turn::Took::kLeft) return false;
              turn.give_back_as_left();
              if (turn.take() != Turn::Took::kLeft) return false;
              turn.give_back_as_left();
              // A grandchild sees the same state.
              return in_child([&] { return turn.take() == Turn::Took::kLeft; }) == 0;
            }),
            0);
  leave = true;
  holder.join();
  EXPECT_EQ(in_child([&] { return Taken(&turn) && !Taken(&turn).was_left(); }), 0);
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
