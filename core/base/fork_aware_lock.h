// A fork-aware lock for long work that one thread does at a time while others wait: scanning,
// loading a plugin, building, calling an op that is not thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/reason.h"

namespace opdock {

// Unlike a mutex, a ForkAwareLock may be held while foreign code runs, because it knows its holder:
//   - A thread that would wait for itself, directly or through other threads, gets kDeadlock at once
//     instead of a deadlock. Examples are a hook that needs the work that it is called about, and a
//     constructor that uses its own plugin.
//   - In a forked child, locks held by other threads of the parent are free again, and the first
//     thread to take such a lock gets kPoisoned: the work was left half done.
// So the results of work done under a lock must be published atomically, by one assignment or under
// NoFork.
class ForkAwareLock {
 public:
  enum class Acquire {
    kAcquired,   // acquired
    kPoisoned,   // acquired, but a thread of the parent was at work when this process was forked
    kDeadlock,   // refused: this thread would wait for itself
    kCancelled,  // refused: `stop` returned true
  };
  ForkAwareLock() = default;
  ForkAwareLock(const ForkAwareLock&) = delete;
  ForkAwareLock& operator=(const ForkAwareLock&) = delete;

  // Acquires the lock if it is free (as kAcquired); otherwise returns false without waiting.
  bool try_lock() {
    uint32_t free = 0;
    return holder_.compare_exchange_strong(free, this_thread(), std::memory_order_acquire);
  }
  // Waits. stop is called every 50 ms, without any lock held; it may be empty.
  Acquire lock(const std::function<bool()>& stop = {});
  void unlock();
  // Releases the lock after kPoisoned: the next thread to take it gets kPoisoned again. The state
  // stays poisoned.
  void unlock_poisoned();

  // Returns whether this thread holds the lock, or the holder waits for this thread.
  bool would_deadlock() const;

 private:
  friend class WaitForHelpersScope;
  static uint32_t this_thread();
  bool is_here(uint32_t thread) const;
  // The number of the thread that holds the lock, with kAwaited set if another thread waits.
  std::atomic<uint32_t> holder_{0};
};

// Takes a lock in its constructor and releases it in its destructor.
class ForkAwareGuard {
 public:
  explicit ForkAwareGuard(ForkAwareLock* lock, const std::function<bool()>& stop = {})
      : lock_(lock), how_(lock->lock(stop)) {}
  // Adopts a lock that try_lock() has acquired.
  ForkAwareGuard(ForkAwareLock* lock, std::adopt_lock_t)
      : lock_(lock), how_(ForkAwareLock::Acquire::kAcquired) {}
  ~ForkAwareGuard() {
    if (*this) lock_->unlock();
  }
  ForkAwareGuard(const ForkAwareGuard&) = delete;
  ForkAwareGuard& operator=(const ForkAwareGuard&) = delete;

  explicit operator bool() const {
    return how_ == ForkAwareLock::Acquire::kAcquired || was_poisoned();
  }
  bool was_poisoned() const { return how_ == ForkAwareLock::Acquire::kPoisoned; }
  bool would_deadlock() const { return how_ == ForkAwareLock::Acquire::kDeadlock; }
  bool was_cancelled() const { return how_ == ForkAwareLock::Acquire::kCancelled; }

 private:
  ForkAwareLock* const lock_;
  const ForkAwareLock::Acquire how_;
};

// Declares, while it lives, that this thread waits for helper threads to end. A helper that tries
// to take a lock held by this thread then gets kDeadlock instead of a deadlock.
class WaitForHelpersScope {
 public:
  // Returns the calling thread's number; a helper calls it for `helpers`.
  static uint32_t number() { return ForkAwareLock::this_thread(); }
  explicit WaitForHelpersScope(std::vector<uint32_t> helpers);
  ~WaitForHelpersScope();
  WaitForHelpersScope(const WaitForHelpersScope&) = delete;
  WaitForHelpersScope& operator=(const WaitForHelpersScope&) = delete;

 private:
  const std::vector<uint32_t> helpers_;
};

// The reasons to report after ForkAwareGuard::would_deadlock() and ForkAwareGuard::was_poisoned().
// what: such as "softmax to be made ready on cpu".
Reason deadlock_reason(const std::string& what);
Reason poisoned_reason(const std::string& what);

}  // namespace opdock
