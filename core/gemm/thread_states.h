// What a library's handle on a device needs: one for each thread, left to the next one when it
// ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "base/mutex.h"

namespace opdock::gemm {

// States are never destroyed: at the process's end the driver may be gone before them.
template <class State>
class ThreadStates {
 public:
  static constexpr int32_t kMostDevices = 64;

  // This thread's state on a device: NULL until it is set.
  static State*& of(int32_t device) { return mine_.states[static_cast<size_t>(device)]; }
  // One that a thread which has ended left; NULL: there is none.
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
    std::array<std::vector<State*>, kMostDevices> states;
  };
  struct Mine {
    std::array<State*, kMostDevices> states{};
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
