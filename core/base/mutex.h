// Locks that a fork does not break. A forked child has one thread; what another one held would stay
// locked for ever, and what it was writing would stay half written. So the library has two kinds:
//   Mutex  for a few lines on memory: a fork waits until no thread is in such a section. No driver,
//          no plugin and no hook of the program is touched while one is held. Files are opened only
//          where a fork must not come in between (cache/locks.cc), or read once, under NoFork:
//          small ones that were installed with the library.
//   Turn   (base/turn.h) for work that takes time or runs foreign code: no fork waits for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

namespace opdock {

// While it lives, no thread of this process forks; one that wants to waits. May be nested.
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

// How many forks lie between this process and the one that loaded the library. Work that remembers
// it and finds another was begun in a parent, whose threads and child processes are not this one's.
uint32_t forks();

}  // namespace opdock
