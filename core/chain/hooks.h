// The program's hooks of long work, and what stands in for those it does not give.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/progress.h"
#include "base/turn.h"
#include "opdock/opdock.h"

namespace opdock {

struct Hooks {
  void* context = nullptr;
  void (*progress)(void* context, const char* text, double fraction) = nullptr;
  int32_t (*cancelled)(void* context) = nullptr;
  void (*waiting)(void* context, int32_t begins) = nullptr;
  const opdock_references* references = nullptr;

  static Hooks of(const opdock_options* options);  // which may be NULL
};

// One piece of work as it is shown to the program or, without a hook, on the terminal: a line on
// stderr that overwrites itself and is gone at the end; where stderr is no terminal, a line at the
// beginning and one at the end. Nothing is printed before the first step. In a child that was
// forked by a hook it says nothing more, and that the work is to stop: it is the parent's.
class HookedProgress : public Progress {
 public:
  // announced: if not NULL, the line at the beginning is left out where stderr is no terminal and
  // *announced is true; writing it sets that. For many short pieces of work of one kind.
  explicit HookedProgress(const Hooks& hooks, std::atomic<bool>* announced = nullptr);
  ~HookedProgress() override;  // finish("")

  void step(std::string_view text, double fraction) override;
  bool cancelled() override;
  // Says how it ended ("built softmax in 2.1 s"), once, if anything was said before.
  void finish(std::string_view text);

 private:
  const Hooks& hooks_;
  const bool terminal_;
  std::atomic<bool>* const announced_;
  bool is_parents() const { return forks() != forks_; }

  const uint32_t forks_ = forks();
  Turn telling_;  // the hooks are called one at a time
  bool begun_ = false;
};

// This thread will be busy for a while, as long as this lives.
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
