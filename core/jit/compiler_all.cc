// Makes many images at a time, each in a process of its own.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "jit/image_maker.h"

namespace opdock {
namespace {

// How often the program is asked whether to stop.
constexpr std::chrono::milliseconds kAskAgain{50};

// Progress of work that several threads share: once one of them is told to stop, all stop.
class SharedProgress : public Progress {
 public:
  explicit SharedProgress(Progress* progress) : progress_(progress) {}
  void step(std::string_view text, double fraction) override {
    const ForkAwareGuard guard(&lock_);
    if (guard) progress_->step(text, fraction);
  }
  bool cancelled() override {
    const ForkAwareGuard guard(&lock_);
    if (guard && !stop_) stop_ = progress_->cancelled();
    return stop_;
  }

 private:
  Progress* progress_;
  ForkAwareLock lock_;  // serialises calls of the program's hooks
  std::atomic<bool> stop_{false};
};

}  // namespace

void compile_all(
    const std::vector<CompileRequest>& requests, int jobs, const JitContext& context,
    const std::function<void(size_t, const CompiledImagePtr&, const std::vector<Reason>&)>& done) {
  JitContext own = context;
  own.in_worker = true;
  SharedProgress shared(context.progress);
  if (context.progress != nullptr) own.progress = &shared;
  std::atomic<size_t> next{0};
  std::mutex telling;
  // Whether a hook has forked and returned in the child, which does not have the other threads.
  const auto is_child = [began = forks()] { return forks() != began; };
  const auto work = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) {
      std::vector<Reason> reasons;
      CompiledImagePtr image;
      if (cancelled(own)) {
        reasons.push_back(cancelled_reason(requests[i]));
      } else {
        image = compile_image(requests[i], own, &reasons);
      }
      if (is_child()) return;
      const std::lock_guard lock(telling);
      done(i, image, reasons);
    }
  };
  const size_t count = std::min(requests.size(), static_cast<size_t>(std::max(jobs, 1)));
  if (count <= 1) return work();
  std::mutex ending;
  std::condition_variable ended;
  std::vector<uint32_t> helpers;
  size_t running = count;
  auto threads = std::make_unique<std::vector<std::jthread>>();
  const auto help = [&] {
    std::unique_lock lock(ending);
    helpers.push_back(WaitForHelpersScope::number());
    lock.unlock();
    work();
    if (is_child()) return;
    lock.lock();
    --running;
    ended.notify_one();
  };
  for (size_t i = 0; i < count; ++i) {
    try {
      threads->emplace_back(help);
    } catch (const std::system_error&) {  // no more threads available: those that started will do
      const std::lock_guard lock(ending);
      running -= count - i;
      break;
    }
  }
  if (threads->empty()) return work();
  // Keep asking on this thread: the program may answer only the thread that called compile_all().
  std::unique_lock lock(ending);
  while (running != 0) {
    {
      const WaitForHelpersScope awaiting(helpers);
      if (ended.wait_for(lock, kAskAgain, [&] { return running == 0; })) break;
    }
    lock.unlock();
    cancelled(own);
    if (is_child()) return static_cast<void>(threads.release());
    lock.lock();
  }
}

}  // namespace opdock
