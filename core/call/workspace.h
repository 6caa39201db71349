// Workspace for one run: the caller's memory, a thread's own buffer on the CPU, or stream-ordered
// device memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "call/invocation.h"

namespace opdock {

// Sets an invocation's call.workspace, and releases the memory at the end of the scope.
class Workspace {
 public:
  explicit Workspace(Invocation* invocation) : in_(*invocation) {}
  ~Workspace() {
    if (kind_ != Kind::kNone) release();
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // bytes > 0. given: the caller's memory of given_bytes, or NULL to let the host allocate.
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
