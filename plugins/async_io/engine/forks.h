// Keeps state consistent across forks. A forked child has only one thread, and whatever another
// thread was changing stays half changed. A mutex that is registered here is held during a fork, so
// that the child finds the state that it guards consistent, and the mutex unlocked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

namespace async_io {

// Returns how many forks lie between this process and the one that loaded this code.
uint32_t forks();

// While this object lives, a fork waits for the mutex. The mutex must therefore be held only
// briefly, for operations on memory, without waiting, calling foreign code or locking another such
// mutex. Any thread.
class ForkLock {
 public:
  explicit ForkLock(std::mutex* mutex);
  ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

 private:
  friend struct HeldMutexes;
  std::mutex* mutex_;
  ForkLock* before_ = nullptr;
  ForkLock* next_ = nullptr;
};

}  // namespace async_io
