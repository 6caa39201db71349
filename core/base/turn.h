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

// Unlike a mutex, a Turn may be held while foreign code runs, because it knows its holder:
//   - A thread that would wait for itself, directly or through other threads, gets kItself at once
//     instead of a deadlock. Examples are a hook that needs the work that it is called about, and a
//     constructor that uses its own plugin.
//   - In a forked child, turns held by other threads of the parent are free again, and the first
//     thread to take such a turn gets kLeft: the work was left half done.
// So the results of work done under a turn must be published atomically, by one assignment or under
// NoFork.
class Turn {
 public:
  enum class Took {
    kFree,     // acquired
    kLeft,     // acquired, but a thread of the parent was at work when this process was forked
    kItself,   // refused: this thread would wait for itself
    kStopped,  // refused: `stop` returned true
  };
  Turn() = default;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Acquires the turn if it is free (as kFree); otherwise returns false without waiting.
  bool try_take() {
    uint32_t free = 0;
    return holder_.compare_exchange_strong(free, this_thread(), std::memory_order_acquire);
  }
  // Waits. stop is called every 50 ms, without any lock held; it may be empty.
  Took take(const std::function<bool()>& stop = {});
  void give_back();
  // Releases the turn after kLeft: the next thread to take it gets kLeft again. The state stays
  // poisoned.
  void give_back_as_left();

  // Returns whether this thread holds the turn, or the holder waits for this thread.
  bool is_ours() const;

 private:
  friend class AwaitingHelpers;
  static uint32_t this_thread();
  bool is_here(uint32_t thread) const;
  // The number of the thread that holds the turn, with kAwaited set if another thread waits.
  std::atomic<uint32_t> holder_{0};
};

// Takes a turn in its constructor and releases it in its destructor.
class Taken {
 public:
  explicit Taken(Turn* turn, const std::function<bool()>& stop = {})
      : turn_(turn), how_(turn->take(stop)) {}
  // Adopts a turn that try_take() has acquired.
  Taken(Turn* turn, std::adopt_lock_t) : turn_(turn), how_(Turn::Took::kFree) {}
  ~Taken() {
    if (*this) turn_->give_back();
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  explicit operator bool() const { return how_ == Turn::Took::kFree || was_left(); }
  bool was_left() const { return how_ == Turn::Took::kLeft; }
  bool is_ours() const { return how_ == Turn::Took::kItself; }
  bool was_stopped() const { return how_ == Turn::Took::kStopped; }

 private:
  Turn* const turn_;
  const Turn::Took how_;
};

// Declares, while it lives, that this thread waits for helper threads to end. A helper that tries
// to take a turn held by this thread then gets kItself instead of a deadlock.
class AwaitingHelpers {
 public:
  // Returns the calling thread's number; a helper calls it for `helpers`.
  static uint32_t number() { return Turn::this_thread(); }
  explicit AwaitingHelpers(std::vector<uint32_t> helpers);
  ~AwaitingHelpers();
  AwaitingHelpers(const AwaitingHelpers&) = delete;
  AwaitingHelpers& operator=(const AwaitingHelpers&) = delete;

 private:
  const std::vector<uint32_t> helpers_;
};

// The reasons to report after Taken::is_ours() and Taken::was_left(). what: such as "softmax to be
// made ready on cpu".
Reason within_itself(const std::string& what);
Reason left_by_fork(const std::string& what);

}  // namespace opdock
