// Scratch memory for one run: the caller's, a thread's own buffer on the CPU, or stream-ordered
// device memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "call/invocation.h"

namespace opdock {

// Gives call.workspace to an invocation and takes it back when it goes out of scope.
class Workspace {
 public:
  explicit Workspace(Invocation* invocation) : in_(*invocation) {}
  ~Workspace() {
    if (kind_ != Kind::kNone) release();
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // bytes > 0. given: the caller's memory of given_bytes, or NULL for the host's.
  opdock_status acquire(uint64_t bytes, uint64_t alignment, void* given, uint64_t given_bytes);

 private:
  enum class Kind { kNone, kThread, kHost, kDevice };
  opdock_status acquire_host(uint64_t bytes, uint64_t alignment);
  void release();

  Invocation& in_;
  Kind kind_ = Kind::kNone;
  void* memory_ = nullptr;
};

}  // namespace opdock
