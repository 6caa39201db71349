// SPDX-License-Identifier: Apache-2.0
#include "call/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "call/invocation.h"
#include "call/openmp.h"

namespace opdock {
namespace {

// A participant's share of the chunks, on its own cache line.
struct alignas(64) Share {
  std::atomic<uint64_t> next;
  uint64_t end;
};

// One parallel_for. Lives on its caller's stack; a worker accesses it only while it is counted in
// `users`.
//
// Each participant begins with its own share, which is the same in every call with these counts, so
// that its core's cache still holds what it wrote in the previous call. Afterwards it takes chunks
// that the others have left.
class Job {
 public:
  Job(void (*body)(void* context, uint64_t begin, uint64_t end), void* context, uint64_t count,
      uint64_t chunk, uint32_t threads)
      : body_(body),
        context_(context),
        count_(count),
        chunk_(chunk),
        chunks_((count - 1) / chunk + 1) {
    participants = static_cast<uint32_t>(std::min<uint64_t>(threads, chunks_));
    num_shares_ = std::min(participants, kMaxShares);
    const uint64_t each = chunks_ / num_shares_, more = chunks_ % num_shares_;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < num_shares_; ++i) {
      shares_[i].next.store(begin, std::memory_order_relaxed);
      shares_[i].end = begin += each + (i < more);
    }
  }

  // Takes chunks until none is left. The caller is participant 0.
  void work(uint32_t participant) {
    for (uint32_t i = 0; i < num_shares_; ++i) {
      Share& share = shares_[(participant + i) % num_shares_];
      for (;;) {
        const uint64_t chunk = share.next.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= share.end) break;
        taken_.fetch_add(1, std::memory_order_relaxed);
        const uint64_t begin = chunk * chunk_;
        body_(context_, begin, begin + std::min(chunk_, count_ - begin));
      }
    }
  }
  bool exhausted() const { return taken_.load(std::memory_order_relaxed) >= chunks_; }

  uint32_t participants;
  uint32_t users = 0;  // workers inside work(); guarded by the pool's mutex

 private:
  static constexpr uint32_t kMaxShares = 32;

  void (*body_)(void* context, uint64_t begin, uint64_t end);
  void* context_;
  uint64_t count_, chunk_, chunks_;
  uint32_t num_shares_;
  std::atomic<uint64_t> taken_{0};
  Share shares_[kMaxShares];
};

// True in a worker, and in a caller while it works: nested calls run on the calling thread only.
thread_local bool is_inside = false;

void work_inside(Job* job, uint32_t participant) {
  is_inside = true;
  job->work(participant);
  is_inside = false;
}

class Pool {
 public:
  // Runs a job. If memory runs out, only the calling thread works on it.
  void run(Job* job) {
    try {
      std::lock_guard lock(mutex_);
      const uint32_t helpers = job->participants - 1;
      start(helpers);
      jobs_.push_back(job);
      for (uint32_t i = 0; i < helpers; ++i) wake_.notify_one();
    } catch (const std::bad_alloc&) {
    }
    work_inside(job, 0);
    std::unique_lock lock(mutex_);
    auto place = std::find(jobs_.begin(), jobs_.end(), job);
    if (place != jobs_.end()) jobs_.erase(place);
    done_.wait(lock, [&] { return job->users == 0; });
  }

 private:
  // Starts workers until there are `wanted`. If the system refuses a thread or memory, fewer
  // workers do the work.
  void start(uint32_t wanted) {
    while (workers_ < wanted) {
      try {
        std::thread([this, number = workers_ + 1] { serve(number); }).detach();
      } catch (const std::exception&) {
        return;
      }
      ++workers_;
    }
  }

  void serve(uint32_t number) {
    std::unique_lock lock(mutex_);
    for (;;) {
      Job* job = nullptr;
      wake_.wait(lock, [&] { return (job = next_job()) != nullptr; });
      ++job->users;
      lock.unlock();
      work_inside(job, number);
      lock.lock();
      if (--job->users == 0) done_.notify_all();
    }
  }

  // Returns the first job that another worker may join. There are as many workers as the largest
  // job so far needed, and a smaller job must not use all of them.
  Job* next_job() const {
    for (Job* job : jobs_) {
      if (job->users + 1 < job->participants && !job->exhausted()) return job;
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Job*> jobs_;
  uint32_t workers_ = 0;
};

std::atomic<Pool*> current_pool{nullptr};

// A forked child has none of the workers and may have inherited a locked mutex, so it makes a new
// pool. The old pool is leaked.
void forget_pool() {
  current_pool.store(nullptr, std::memory_order_relaxed);
  is_inside = false;
}

[[maybe_unused]] const int renewed_on_fork = pthread_atfork(nullptr, nullptr, forget_pool);

Pool& pool() {
  Pool* pool = current_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  Pool* made = new Pool;  // never destroyed: workers may outlive main()
  if (current_pool.compare_exchange_strong(pool, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *pool;
}

// Work in which each thread of an OpenMP region has one chunk, or more if the region has fewer
// threads than were requested. No thread writes what another one reads.
struct EvenJob {
  const OpenMp* runtime;
  void (*body)(void* context, uint64_t begin, uint64_t end);
  void* context;
  uint64_t count, chunk;
};
void work_evenly(void* what) {
  const EvenJob& job = *static_cast<const EvenJob*>(what);
  const uint64_t step = static_cast<uint64_t>(job.runtime->num_threads()) * job.chunk;
  uint64_t begin = static_cast<uint64_t>(job.runtime->thread_number()) * job.chunk;
  is_inside = true;
  for (; begin < job.count; begin += step)
    job.body(job.context, begin, begin + std::min(job.chunk, job.count - begin));
  is_inside = false;
}

// The body of each thread of an OpenMP region.
void work_in_region(void* job) {
  work_inside(static_cast<Job*>(job), static_cast<uint32_t>(openmp()->thread_number()));
}

// Grains per thread below which threads do not take over each other's chunks: taking over a chunk,
// whose data lies in the other thread's cache, takes longer than waiting for that thread.
constexpr uint64_t kMinShared = 16;

uint32_t count_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// Runs chunks that threads take from each other. Not inlined, because a Job is large.
[[gnu::noinline]] void share(const OpenMp* shared, uint32_t threads, uint64_t count, uint64_t chunk,
                             void (*body)(void* context, uint64_t begin, uint64_t end),
                             void* context) {
  Job job(body, context, count, chunk, threads);
  if (shared) {
    shared->parallel(work_in_region, &job, job.participants, 0);
    return;
  }
  Pool* workers = nullptr;
  try {
    workers = &pool();
  } catch (const std::bad_alloc&) {
    body(context, 0, count);
    return;
  }
  workers->run(&job);
}

}  // namespace

uint32_t cpu_cores() {
  static std::atomic<uint32_t> cores{0};
  uint32_t known = cores.load(std::memory_order_relaxed);
  if (known == 0) cores.store(known = count_cores(), std::memory_order_relaxed);
  return known;
}

void parallel_for(uint32_t threads, uint64_t count, uint64_t grain,
                  void (*body)(void* context, uint64_t begin, uint64_t end), void* context) {
  if (count == 0) return;
  grain = std::max<uint64_t>(grain, 1);
  const OpenMp* const shared = is_inside || count / grain <= 1 ? nullptr : openmp();
  if (threads == 0)
    threads = shared ? static_cast<uint32_t>(std::max(1, shared->max_threads())) : cpu_cores();
  if (is_inside || threads <= 1 || count / grain <= 1) {
    body(context, 0, count);
    return;
  }
  // Four chunks per thread even out unequal speeds. Every thread gets the same number of chunks if
  // there is more than one for each. In short work each of OpenMP's threads, which start
  // immediately, gets one chunk.
  const bool even = shared && count / grain < threads * kMinShared;
  uint64_t pieces = std::min<uint64_t>(count / grain, even ? threads : uint64_t{threads} * 4);
  if (pieces > threads) pieces -= pieces % threads;
  const uint64_t chunk = (count - 1) / pieces + 1;
  // A thread may advance by up to `threads` chunks past `count`; that position must not overflow.
  if (count > UINT64_MAX - chunk * (uint64_t{threads} + 1)) {
    body(context, 0, count);
    return;
  }
  if (even) {
    EvenJob job = {shared, body, context, count, chunk};
    shared->parallel(work_evenly, &job, static_cast<unsigned>((count - 1) / chunk + 1), 0);
    return;
  }
  share(shared, threads, count, chunk, body, context);
}

namespace {

// noexcept: if a chunk failed, the op's result would be wrong.
void parallel_for_call(const opdock_call* call, uint64_t count, uint64_t grain,
                       void (*body)(void* context, uint64_t begin, uint64_t end),
                       void* context) noexcept {
  const Invocation& in = *static_cast<const Invocation*>(call->host_data);
  parallel_for(in.function.resolver()->threads(), count, grain, body, context);
}

constexpr opdock_parallel kTable = {sizeof(opdock_parallel), 0, parallel_for_call};

}  // namespace

const opdock_parallel* parallel_extension() {
  return &kTable;
}

}  // namespace opdock
