// SPDX-License-Identifier: Apache-2.0
#include "state.h"

#include <unistd.h>

#include <algorithm>

namespace softgpu {

State& state() {
  static State& state = *new State;
  return state;
}

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

CUcontext current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

CUresult enter(const char* function) {
  if (const Failure* failure = strike(function)) {
    if (failure->sticky) state().sticky = failure->error;
    return failure->error;
  }
  if (state().sticky != CUDA_SUCCESS) return state().sticky;
  if (state().init_pid != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

CUresult enter_with_context(const char* function, CUcontext* context) {
  if (const CUresult error = enter(function)) return error;
  *context = current_context();
  return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

const Allocation* find_allocation(uintptr_t address, uint64_t size) {
  auto& allocations = state().allocations;
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  --after;
  const uint64_t offset = address - after->first;
  const bool inside = offset <= after->second.size && size <= after->second.size - offset;
  return inside ? &after->second : nullptr;
}

CUcontext context_of(CUstream stream) {
  if (reinterpret_cast<uintptr_t>(stream) <= 2) return current_context();
  const auto found = state().streams.find(stream);
  return found == state().streams.end() ? nullptr : found->second->context;
}

bool any_capturing() {
  return std::any_of(state().streams.begin(), state().streams.end(),
                     [](const auto& entry) { return entry.second->capturing; });
}

}  // namespace softgpu
