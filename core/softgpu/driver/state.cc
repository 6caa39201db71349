// SPDX-License-Identifier: Apache-2.0
#include "state.h"

#include <unistd.h>

#include "at_exit.h"
#include "pending.h"
#include "reason.h"

namespace softgpu {

State& state() {
  static State& state = *new State;
  return state;
}

Result initialise(std::deque<DeviceContext>* contexts, const std::vector<Gpu>& gpus) {
  // Checked without the mutex, which a thread of the parent may have held at the fork.
  const int initialised_by = state().init_pid;
  if (initialised_by != 0 && initialised_by != getpid()) return kNotInitialized;
  if (gpus.empty()) return kNoDevice;
  const Lock lock = lock_state();
  if (state().init_pid == 0 && config().executes()) {
    configure({config().seed, config().workers, !config().counters.empty(), config().steps});
    ask_pending_writes(pending_writes_of);
    finish_at_exit();
  }
  if (contexts->empty()) {
    for (size_t i = 0; i < gpus.size(); ++i) {
      DeviceContext& context = contexts->emplace_back();
      context.gpu = &gpus[i];
      context.device = static_cast<int>(i);
    }
  }
  state().init_pid = getpid();
  return kSuccess;
}

bool& in_host_function() {
  thread_local bool inside = false;
  return inside;
}

std::vector<ReadOnly>& read_only_of_thread() {
  thread_local std::vector<ReadOnly> ranges;
  return ranges;
}

Result set_read_only(const void* const* addresses, const uint64_t* bytes, unsigned count,
                     const char* what) {
  std::vector<ReadOnly>& ranges = read_only_of_thread();
  ranges.clear();
  for (unsigned i = 0; i < count; ++i)
    ranges.push_back({reinterpret_cast<uintptr_t>(addresses[i]), bytes[i], what});
  return kSuccess;
}

Result enter(const char* function) {
  forget_reason();
  if (const Failure* failure = strike(function)) {
    if (failure->sticky) state().sticky = failure->error;
    return failure->error;
  }
  if (state().sticky != kSuccess) return state().sticky;
  if (state().init_pid != getpid()) return kNotInitialized;
  return in_host_function() ? kNotPermitted : kSuccess;
}

const Memory* find_memory(uintptr_t address, uint64_t size) {
  auto& memory = state().memory;
  auto after = memory.upper_bound(address);
  if (after == memory.begin()) return nullptr;
  --after;
  const uint64_t offset = address - after->first;
  const bool inside = offset <= after->second.size && size <= after->second.size - offset;
  return inside ? &after->second : nullptr;
}

}  // namespace softgpu
