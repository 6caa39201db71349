// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "core.h"
#include "pages.h"
#include "request.h"
#include "worker.h"

namespace async_io {
namespace {

void check_option(const char* name, uint64_t found, uint64_t most) {
  if (found >= 1 && found <= most) return;
  throw Error(Error::Kind::kArgument, std::string(name) + ": found " + std::to_string(found) +
                                          ", wanted 1 to " + std::to_string(most));
}

Options checked(Options options) {
  check_option("block_size", options.block_size, uint64_t{1} << 30);
  check_option("queue_depth", options.queue_depth, 32768);
  check_option("num_threads", options.num_threads, 1024);
  const uint64_t page = page_size();
  options.block_size = (options.block_size + page - 1) / page * page;
  return options;
}

// Drops one user; returns whether the core may be deleted because it has none left.
bool release_user(Core* core) {
  std::lock_guard lock(core->mutex);
  return --core->users == 0;
}

void* thread_main(void* argument) {
  Worker* worker = static_cast<Worker*>(argument);
  Core* core = worker->core();
  worker->work();
  if (release_user(core)) delete core;
  return nullptr;
}

// Tells the threads to end once nothing is left to do. Returns true if nobody uses the core any
// more.
bool stop(Core* core) {
  {
    std::lock_guard lock(core->mutex);
    core->is_stopping = true;
  }
  core->work.value.notify_all();
  for (const pthread_t thread : core->threads) {
    if (core->is_own_thread())
      pthread_detach(thread);
    else
      pthread_join(thread, nullptr);
  }
  return release_user(core);
}

// Blocks all signals in the engine's threads, except those that a thread's own error raises: other
// signals are for the program's threads. SIGXFSZ is blocked too, so that a write beyond the limit
// of file sizes fails with EFBIG instead of ending the process.
int start_threads(Core* core) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (const std::unique_ptr<Worker>& worker : core->workers) {
    {
      std::lock_guard lock(core->mutex);
      ++core->users;
    }
    pthread_t thread;
    error = pthread_create(&thread, nullptr, thread_main, worker.get());
    if (error == 0) {
      core->threads.push_back(thread);
      continue;
    }
    release_user(core);
    break;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void check_process(const Core& core) {
  if (core.is_parents())
    throw Error(Error::Kind::kUnusable,
                "this I/O handle was made before a fork, and its threads are in the parent; make a "
                "new handle in this process");
}

void check_may_wait(const Core& core) {
  check_process(core);
  if (core.is_own_thread())
    throw Error(Error::Kind::kUnusable,
                "a callback of an I/O handle cannot wait for that handle, whose threads run it; "
                "wait in another thread");
}

uint64_t enqueue(Core* core, const Request& request, bool is_run) {
  std::unique_ptr<Job> job = make_job(request);
  job->is_run = is_run;
  uint64_t ticket;
  {
    std::lock_guard lock(core->mutex);
    ticket = job->ticket = core->last_ticket + 1;
    core->push_back(core->jobs.emplace(ticket, std::move(job)).first->second.get());
    core->last_ticket = ticket;
  }
  core->work.value.notify_one();
  return ticket;
}

using Place = std::map<uint64_t, std::unique_ptr<Job>>::iterator;

// Ends one wait for the job; the mutex must be held. Returns the error's text if the job has
// failed.
std::string leave(Core* core, Place place) {
  Job* job = place->second.get();
  std::string error = job->failure ? to_text(job->failure, job->request) : "";
  if (--job->waiters == 0) core->jobs.erase(place);
  return error;
}

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenStops(50);

// Blocks until the job has ended. The mutex must be held, and the job must be counted among those
// waited for. Calls stop() whenever `next_stop` has passed, and moves it on; one that waits for
// several jobs keeps it from each to the next, because each may end sooner than that. Returns false
// if stop() returned true first.
bool await(Core* core, const Job& job, std::unique_lock<std::mutex>* lock,
           const std::function<bool()>& stop, Clock::time_point* next_stop) {
  if (!stop) core->ended.value.wait(*lock, [&] { return job.has_ended; });
  while (!job.has_ended) {
    if (Clock::now() < *next_stop) {
      core->ended.value.wait_until(*lock, *next_stop);
      continue;
    }
    lock->unlock();
    const bool is_over = stop();
    lock->lock();
    if (is_over && !job.has_ended) return false;
    *next_stop = Clock::now() + kBetweenStops;
  }
  return true;
}

[[noreturn]] void throw_stopped() {
  throw Error(Error::Kind::kStopped, "waiting was stopped on request; the I/O goes on");
}

void wait_for(Core* core, uint64_t ticket, const std::function<bool()>& stop) {
  std::string error;
  {
    std::unique_lock lock(core->mutex);
    const Place place = core->jobs.find(ticket);
    if (place == core->jobs.end())
      throw Error(Error::Kind::kArgument,
                  "ticket: found " + std::to_string(ticket) +
                      ", wanted one that submit has given and nobody has waited for yet");
    Job* job = place->second.get();
    ++job->waiters;
    Clock::time_point next_stop = Clock::now() + kBetweenStops;
    if (!await(core, *job, &lock, stop, &next_stop)) {
      --job->waiters;
      throw_stopped();
    }
    error = leave(core, place);
  }
  if (!error.empty()) throw Error(Error::Kind::kSystem, error);
}

}  // namespace

Engine::Engine(const Options& options) {
  Options in_effect = checked(options);
  Rings rings = make_rings(in_effect);
  in_effect.backend = rings.backend;
  core_ = new Core(in_effect, std::move(rings));
  const int error = start_threads(core_);
  if (error == 0) return;
  const size_t started = core_->threads.size();
  if (stop(core_)) delete core_;
  throw Error(Error::Kind::kSystem,
              "found room for " + std::to_string(started) +
                  " threads, wanted num_threads = " + std::to_string(in_effect.num_threads) + ": " +
                  error_text(error) + "; ask for fewer");
}

Engine::~Engine() {
  if (core_->is_parents() || stop(core_)) delete core_;
}

uint64_t Engine::submit(const Request& request) {
  check_process(*core_);
  return enqueue(core_, request, false);
}

void Engine::wait(uint64_t ticket, const std::function<bool()>& stop) {
  check_may_wait(*core_);
  wait_for(core_, ticket, stop);
}

size_t Engine::wait_all(const std::function<bool()>& stop) {
  check_may_wait(*core_);
  std::string error;
  std::vector<Place> all;
  {
    std::unique_lock lock(core_->mutex);
    for (Place place = core_->jobs.begin(); place != core_->jobs.end(); ++place)
      if (!place->second->is_run) all.push_back(place);
    // A job that is counted as waited for stays in the map until leave() is called for it.
    for (const Place place : all) ++place->second->waiters;
    Clock::time_point next_stop = Clock::now() + kBetweenStops;
    for (const Place place : all) {
      if (await(core_, *place->second, &lock, stop, &next_stop)) continue;
      for (const Place kept : all) --kept->second->waiters;
      throw_stopped();
    }
    for (const Place place : all) {
      const std::string text = leave(core_, place);
      if (error.empty()) error = text;
    }
  }
  if (!error.empty()) throw Error(Error::Kind::kSystem, error);
  return all.size();
}

void Engine::run(const Request& request) {
  check_may_wait(*core_);
  wait_for(core_, enqueue(core_, request, true), {});
}

const Options& Engine::options() const {
  return core_->options;
}

const std::string& Engine::report() const {
  return core_->rings.report;
}

Totals Engine::totals() const {
  std::lock_guard lock(core_->mutex);
  return core_->totals;
}

}  // namespace async_io
