// SPDX-License-Identifier: Apache-2.0
#include "call/workspace.h"

#include <cstdlib>
#include <string>

#include "call/memory.h"

namespace opdock {
namespace {

constexpr uint64_t kKeepBytes = uint64_t{64} << 20;  // a thread keeps no larger buffer

// A thread's buffer, reused from call to call.
struct Scratch {
  void* memory = nullptr;
  uint64_t bytes = 0;
  bool busy = false;
  ~Scratch() { std::free(memory); }
};
thread_local Scratch scratch;

}  // namespace

opdock_status Workspace::acquire(uint64_t bytes, uint64_t alignment, void* given,
                                 uint64_t given_bytes) {
  if (alignment == 0) alignment = kAlignment;
  if (given != nullptr) {
    if (given_bytes < bytes || reinterpret_cast<uintptr_t>(given) % alignment != 0) {
      return in_.fail(
          OPDOCK_INVALID_ARGUMENT,
          "options.workspace: found " + std::to_string(given_bytes) + " bytes at an address " +
              std::to_string(reinterpret_cast<uintptr_t>(given) % alignment) +
              " past a multiple of " + std::to_string(alignment) + ", wanted " +
              std::to_string(bytes) + " aligned to it, as planned; pass NULL for the host's");
    }
    in_.call.workspace = given;
  } else if (in_.target->driver == nullptr) {
    opdock_status status = acquire_host(bytes, alignment);
    if (status != OPDOCK_OK) return status;
  } else {
    const Status done = allocate_on_device(*in_.target, in_.call.stream, bytes, alignment, &memory_,
                                           &in_.call.workspace);
    if (!done.ok()) return in_.fail(done.status, "workspace: " + done.text);
    kind_ = Kind::kDevice;
  }
  in_.call.workspace_bytes = bytes;
  return OPDOCK_OK;
}

opdock_status Workspace::acquire_host(uint64_t bytes, uint64_t alignment) {
  bool keep = !scratch.busy && bytes <= kKeepBytes && alignment <= kAlignment;
  if (keep && scratch.bytes >= bytes) {
    kind_ = Kind::kThread;
  } else {
    memory_ = allocate_on_host(bytes, alignment);
    if (memory_ == nullptr) {
      return in_.fail(OPDOCK_OUT_OF_MEMORY, "workspace: no host memory of " +
                                                std::to_string(bytes) +
                                                " bytes; free some and try again");
    }
    kind_ = Kind::kHost;
    if (keep) {
      std::free(scratch.memory);
      scratch.memory = memory_;
      scratch.bytes = bytes;
      kind_ = Kind::kThread;
    }
  }
  if (kind_ == Kind::kThread) {
    scratch.busy = true;
    memory_ = scratch.memory;
  }
  in_.call.workspace = memory_;
  return OPDOCK_OK;
}

void Workspace::release() {
  switch (kind_) {
    case Kind::kNone:
      break;
    case Kind::kThread:
      scratch.busy = false;
      break;
    case Kind::kHost:
      std::free(memory_);
      break;
    case Kind::kDevice:
      in_.target->driver->release(in_.target->device.index, in_.call.stream, memory_);
      break;
  }
}

}  // namespace opdock
