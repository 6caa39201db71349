// SPDX-License-Identifier: Apache-2.0
#include "forks.h"

#include <pthread.h>

#include <atomic>
#include <new>

namespace async_io {

// Constant-initialised and trivially destroyed, because engines may be made before, and destroyed
// after, any other static object.
struct HeldMutexes {
  std::mutex mutex;
  ForkLock* first = nullptr;
  std::atomic<uint32_t> forks{0};

  void lock() {
    mutex.lock();
    for (ForkLock* held = first; held != nullptr; held = held->next_) held->mutex_->lock();
  }
  void unlock() {
    for (ForkLock* held = first; held != nullptr; held = held->next_) held->mutex_->unlock();
    mutex.unlock();
  }
  void add(ForkLock* held) {
    std::lock_guard lock(mutex);
    held->next_ = first;
    if (first != nullptr) first->before_ = held;
    first = held;
  }
  void remove(ForkLock* held) {
    std::lock_guard lock(mutex);
    (held->before_ != nullptr ? held->before_->next_ : first) = held->next_;
    if (held->next_ != nullptr) held->next_->before_ = held->before_;
  }
};

namespace {

HeldMutexes held_mutexes;

void before_fork() {
  held_mutexes.lock();
}
void after_fork_in_parent() {
  held_mutexes.unlock();
}
void after_fork_in_child() {
  held_mutexes.forks.fetch_add(1, std::memory_order_relaxed);
  held_mutexes.unlock();
}

}  // namespace

uint32_t forks() {
  return held_mutexes.forks.load(std::memory_order_relaxed);
}

ForkLock::ForkLock(std::mutex* mutex) : mutex_(mutex) {
  // The C library unregisters the handlers if this code is unloaded.
  static const int failed = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (failed != 0) throw std::bad_alloc();
  held_mutexes.add(this);
}

ForkLock::~ForkLock() {
  held_mutexes.remove(this);
}

}  // namespace async_io
