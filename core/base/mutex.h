// Fork-aware locks. A forked child has only one thread: a lock that another thread held would stay
// locked for ever, and the data that it was writing would stay half written. So the library has two
// kinds of locks:
//   Mutex  protects a few lines of work on memory: a fork waits until no thread is in such a
//          section. While one is held, no driver, plugin or hook of the program is called. Files are
//          opened in such a section only where a fork must not come in between (cache/locks.cc), or
//          for small files that were installed with the library and are read once, under NoFork.
//   ForkAwareLock  (base/fork_aware_lock.h) protects work that takes time or runs foreign code: no
//          fork waits for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

namespace opdock {

// While one lives, no thread of this process forks; a thread that calls fork() waits. May be
// nested.
class NoFork {
 public:
  NoFork() { begin(); }
  ~NoFork() { end(); }
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;

  static void begin();
  static void end();
};

class Mutex {
 public:
  void lock() {
    NoFork::begin();
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    NoFork::end();
  }

 private:
  std::mutex mutex_;
};

// Returns the number of forks between the process that loaded the library and this one. Work that
// has stored another number was begun in a parent process, and that process owns its threads and
// children.
uint32_t forks();

}  // namespace opdock
