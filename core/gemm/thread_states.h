// A library's state on a device, such as its handle. Each thread has its own; when the thread ends,
// the next thread that needs one reuses it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "base/mutex.h"

namespace opdock::gemm {

// States are never destroyed: when the process ends, the driver may be unloaded first.
template <class State>
class ThreadStates {
 public:
  static constexpr int32_t kMaxDevices = 64;

  // Returns this thread's state on a device; NULL until it is set.
  static State*& of(int32_t device) { return mine_.states[static_cast<size_t>(device)]; }
  // Takes over a state that a thread left when it ended; NULL if there is none.
  static State* take_left(int32_t device) {
    const std::lock_guard lock(left_.mutex);
    auto& free = left_.states[static_cast<size_t>(device)];
    if (free.empty()) return nullptr;
    State* const state = free.back();
    free.pop_back();
    return state;
  }

 private:
  struct Left {
    Mutex mutex;
    std::array<std::vector<State*>, kMaxDevices> states;
  };
  struct Mine {
    std::array<State*, kMaxDevices> states{};
    ~Mine() {
      const std::lock_guard lock(left_.mutex);
      for (size_t i = 0; i < states.size(); ++i)
        if (states[i] != nullptr) left_.states[i].push_back(states[i]);
    }
  };
  static inline Left& left_ = *new Left;
  static inline thread_local Mine mine_;
};

}  // namespace opdock::gemm
