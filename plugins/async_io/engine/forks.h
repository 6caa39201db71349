// What a fork leaves of threads' work: a child has one thread, and what another one was changing
// stays half changed. A mutex named here is held by whoever forks, so that the child finds whole
// what it guards, and unlocked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

namespace async_io {

// How many forks lie between this process and the one that loaded this code.
uint32_t forks();

// While it lives, a fork waits for the mutex, which therefore must be held for a few lines on
// memory only, without a wait, foreign code or another such mutex inside. Any thread.
class HeldAtFork {
 public:
  explicit HeldAtFork(std::mutex* mutex);
  ~HeldAtFork();
  HeldAtFork(const HeldAtFork&) = delete;
  HeldAtFork& operator=(const HeldAtFork&) = delete;

 private:
  friend struct HeldMutexes;
  std::mutex* mutex_;
  HeldAtFork* before_ = nullptr;
  HeldAtFork* next_ = nullptr;
};

}  // namespace async_io
