// SPDX-License-Identifier: Apache-2.0
#include "base/fork_aware_lock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <mutex>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace opdock {
namespace {

constexpr uint32_t kAwaited = 1u << 31;
constexpr uint32_t kGone = kAwaited - 1;  // set by unlock_poisoned(); no thread has this number
constexpr timespec kPoll{0, 50'000'000};  // how often a waiting thread asks `stop`

std::atomic<uint32_t> next_thread{1};
// The threads that exist in a forked child: the one that forked, and those numbered from
// `first_here` on.
std::atomic<uint32_t> first_here{1}, forked_here{0};
thread_local uint32_t own_number = 0;

// An edge of the wait-for graph: a thread waits for the holder of a lock, or for a helper to end.
struct Wait {
  uint32_t waiter;
  const std::atomic<uint32_t>* holder;
  uint32_t helper;
};
struct Waits {
  Mutex mutex;
  std::vector<Wait> all;
};
Waits& waits = *new Waits;

// Returns whether thread `who` is `whom` or waits for it, directly or through others. The mutex is
// held. `steps` bounds the recursion, however the holders change meanwhile.
bool waits_for(uint32_t who, uint32_t whom, size_t steps) {
  if (who == whom) return true;
  if (who == 0 || steps == 0) return false;
  return std::any_of(waits.all.begin(), waits.all.end(), [&](const Wait& wait) {
    if (wait.waiter != who) return false;
    const uint32_t next = wait.holder == nullptr ? wait.helper : *wait.holder & ~kAwaited;
    return waits_for(next, whom, steps - 1);
  });
}

bool begin_wait(uint32_t waiter, uint32_t holder, const std::atomic<uint32_t>* word) {
  const std::lock_guard lock(waits.mutex);
  if (waits_for(holder, waiter, waits.all.size() + 1)) return false;
  waits.all.push_back({waiter, word, 0});
  return true;
}

void end_wait(uint32_t waiter, const std::atomic<uint32_t>* word, uint32_t helper) {
  const std::lock_guard lock(waits.mutex);
  const auto own = std::find_if(waits.all.begin(), waits.all.end(), [&](const Wait& wait) {
    return wait.waiter == waiter && wait.holder == word && wait.helper == helper;
  });
  if (own != waits.all.end()) waits.all.erase(own);
}

void forget_waits() {
  waits.all.clear();  // the child has no thread that waits
  forked_here.store(own_number);
  first_here.store(next_thread.load());
}

[[maybe_unused]] const int forgets = pthread_atfork(nullptr, nullptr, forget_waits);

void sleep_while(std::atomic<uint32_t>* word, uint32_t value) {
  static_assert(sizeof *word == sizeof(uint32_t));
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &kPoll, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

uint32_t ForkAwareLock::this_thread() {
  // The numbers wrap around after two thousand million threads.
  while (own_number == 0 || own_number == kGone) own_number = next_thread.fetch_add(1) & ~kAwaited;
  return own_number;
}

bool ForkAwareLock::is_here(uint32_t thread) const {
  if (thread == kGone) return false;
  return thread >= first_here.load(std::memory_order_relaxed) ||
         thread == forked_here.load(std::memory_order_relaxed);
}

ForkAwareLock::Acquire ForkAwareLock::lock(const std::function<bool()>& stop) {
  const uint32_t me = this_thread();
  for (uint32_t seen = holder_.load();;) {
    const uint32_t holder = seen & ~kAwaited;
    if (holder == 0 || !is_here(holder)) {
      if (!holder_.compare_exchange_weak(seen, me, std::memory_order_acquire)) continue;
      return holder == 0 ? Acquire::kAcquired : Acquire::kPoisoned;
    }
    const uint32_t awaited = seen | kAwaited;
    if (seen != awaited && !holder_.compare_exchange_weak(seen, awaited)) continue;
    if (!begin_wait(me, holder, &holder_)) return Acquire::kDeadlock;
    sleep_while(&holder_, awaited);
    end_wait(me, &holder_, 0);
    seen = holder_.load();
    if ((seen & ~kAwaited) != 0 && stop && stop()) return Acquire::kCancelled;
  }
}

void ForkAwareLock::unlock() {
  // Another thread may destroy the lock as soon as it is free. Waking sleepers at its old address
  // is harmless.
  std::atomic<uint32_t>* const word = &holder_;
  if ((holder_.exchange(0, std::memory_order_release) & kAwaited) != 0) wake_all(word);
}

void ForkAwareLock::unlock_poisoned() {
  std::atomic<uint32_t>* const word = &holder_;
  if ((holder_.exchange(kGone, std::memory_order_release) & kAwaited) != 0) wake_all(word);
}

bool ForkAwareLock::would_deadlock() const {
  const uint32_t holder = holder_.load() & ~kAwaited;
  if (holder == 0 || !is_here(holder)) return false;
  const std::lock_guard lock(waits.mutex);
  return waits_for(holder, this_thread(), waits.all.size() + 1);
}

WaitForHelpersScope::WaitForHelpersScope(std::vector<uint32_t> helpers)
    : helpers_(std::move(helpers)) {
  const std::lock_guard lock(waits.mutex);
  for (const uint32_t helper : helpers_)
    waits.all.push_back({ForkAwareLock::this_thread(), nullptr, helper});
}

WaitForHelpersScope::~WaitForHelpersScope() {
  for (const uint32_t helper : helpers_) end_wait(ForkAwareLock::this_thread(), nullptr, helper);
}

Reason deadlock_reason(const std::string& what) {
  return make_reason(Code::kWithinItself, "a call from within that work", what + ", first");
}

Reason poisoned_reason(const std::string& what) {
  return make_reason(Code::kLeftByFork, "another thread at it when this process was forked", what);
}

}  // namespace opdock
