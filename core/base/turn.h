// Work that one thread does at a time while others that want it wait: scanning, loading a plugin,
// building, a call of an op that is not thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/reason.h"

namespace opdock {

// Unlike a mutex it may be held while foreign code runs, because it is known who holds it:
//   - A thread that would wait for itself (a hook that needs what it reports on, a constructor
//     that comes back to its own plugin), directly or through other threads, gets kItself at once.
//   - In a forked child the turns of threads that it does not have are free, and the first to take
//     one gets kLeft: the work was left half done.
// What is made in a turn must be put in its place whole: by one assignment, or under NoFork.
class Turn {
 public:
  enum class Took {
    kFree,     // it is ours
    kLeft,     // ours, from a thread of the parent that was at work when this process was forked
    kItself,   // not ours: we would wait for ourselves
    kStopped,  // not ours: `stop` said so
  };
  Turn() = default;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // kFree, or false without waiting.
  bool try_take() {
    uint32_t free = 0;
    return holder_.compare_exchange_strong(free, this_thread(), std::memory_order_acquire);
  }
  // Waits. stop: called every 50 ms, without any lock; may be empty.
  Took take(const std::function<bool()>& stop = {});
  void give_back();
  // After kLeft: the next to take it gets the same, as what was left cannot be mended.
  void give_back_as_left();

  // Whether the holder waits for this thread, or is this thread.
  bool is_ours() const;

 private:
  friend class AwaitingHelpers;
  static uint32_t this_thread();
  bool is_here(uint32_t thread) const;
  // The thread that holds it, and whether another waits.
  std::atomic<uint32_t> holder_{0};
};

// A turn for a scope.
class Taken {
 public:
  explicit Taken(Turn* turn, const std::function<bool()>& stop = {})
      : turn_(turn), how_(turn->take(stop)) {}
  // One that try_take() has given.
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

// While this lives this thread waits for helpers to end: they must not wait for what it holds.
class AwaitingHelpers {
 public:
  static uint32_t number() { return Turn::this_thread(); }  // a helper's
  explicit AwaitingHelpers(std::vector<uint32_t> helpers);
  ~AwaitingHelpers();
  AwaitingHelpers(const AwaitingHelpers&) = delete;
  AwaitingHelpers& operator=(const AwaitingHelpers&) = delete;

 private:
  const std::vector<uint32_t> helpers_;
};

// The reasons for what Taken was refused or found. what: "softmax to be made ready on cpu".
Reason within_itself(const std::string& what);
Reason left_by_fork(const std::string& what);

}  // namespace opdock
