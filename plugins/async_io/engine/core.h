// State that the functions and the threads of an engine share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "forks.h"
#include "ring.h"

namespace async_io {

// Avoids the destructor of a condition variable, which in a forked child would wait for the
// parent's threads.
template <class T>
union NeverDestroyed {
  NeverDestroyed() : value() {}
  ~NeverDestroyed() {}
  T value;
};

class Worker;

// The state of an engine, which may outlive its handle. Threads change what it owns only with the
// mutex held, so that a forked child finds it in a consistent state and can free it.
struct Core {
  Core(const Options& options, Rings rings);
  ~Core();

  // Returns whether this process is a forked child, and the threads are in its parent.
  bool is_parents() const { return forks() != made_after_forks; }
  // Returns whether this is one of the engine's threads, which means a callback is running.
  bool is_own_thread() const;

  // The mutex must be held for these three:
  void push_front(Job* job);
  void push_back(Job* job);
  void remove(Job* job);  // does nothing if the job is not queued

  const Options options;
  const uint32_t made_after_forks;
  Rings rings;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<pthread_t> threads;

  std::mutex mutex;
  NeverDestroyed<std::condition_variable> work;   // something is queued, or is_stopping is set
  NeverDestroyed<std::condition_variable> ended;  // a job has ended
  // By ticket: jobs that have not ended, and those whose outcome nobody has waited for.
  std::map<uint64_t, std::unique_ptr<Job>> jobs;
  uint64_t last_ticket = 0;
  // The queue: jobs to open, and open ones with blocks that no thread has taken; first come, first
  // served.
  Job* first = nullptr;
  Job* last = nullptr;
  bool is_stopping = false;
  uint32_t users = 1;  // the engine and its running threads; the last one deletes the core
  Totals totals;
  const ForkLock held_at_fork{&mutex};
};

}  // namespace async_io
