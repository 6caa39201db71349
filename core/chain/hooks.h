// The program's hooks for long work, and the defaults for hooks that the program does not set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "base/progress.h"
#include "opdock/opdock.h"

namespace opdock {

struct Hooks {
  void* context = nullptr;
  void (*progress)(void* context, const char* text, double fraction) = nullptr;
  int32_t (*cancelled)(void* context) = nullptr;
  void (*waiting)(void* context, int32_t begins) = nullptr;
  const opdock_references* references = nullptr;

  static Hooks of(const opdock_options* options);  // options may be NULL
};

// Shows one piece of work to the program or, without a hook, on the terminal: a line on stderr that
// overwrites itself and is gone at the end. If stderr is not a terminal, there is one line at the
// beginning and one at the end. Nothing is printed before the first step. In a child that a hook
// has forked, nothing more is printed and cancelled() returns true, because the work is the
// parent's.
class HookedProgress : public Progress {
 public:
  // announced: if not NULL, and stderr is not a terminal, the line at the beginning is left out if
  // *announced is true; writing it sets *announced. This is for many short pieces of work of one
  // kind.
  explicit HookedProgress(const Hooks& hooks, std::atomic<bool>* announced = nullptr);
  ~HookedProgress() override;  // finish("")

  void step(std::string_view text, double fraction) override;
  bool cancelled() override;
  // Says how the work ended ("built softmax in 2.1 s"), once, if anything was shown before.
  void finish(std::string_view text);

 private:
  const Hooks& hooks_;
  const bool terminal_;
  std::atomic<bool>* const announced_;
  bool is_parents() const { return forks() != forks_; }

  const uint32_t forks_ = forks();
  ForkAwareLock telling_;  // serialises calls of the hooks
  bool begun_ = false;
};

// Tells the program, while it lives, that this thread is busy for a while.
class Waiting {
 public:
  explicit Waiting(const Hooks& hooks) : hooks_(hooks) {
    if (hooks_.waiting != nullptr) hooks_.waiting(hooks_.context, 1);
  }
  ~Waiting() {
    if (hooks_.waiting != nullptr) hooks_.waiting(hooks_.context, 0);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const Hooks& hooks_;
};

}  // namespace opdock
