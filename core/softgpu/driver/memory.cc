// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "capture.h"

namespace softgpu {
namespace {

constexpr uint64_t kAlignment = 256;  // the same as the drivers'

uintptr_t address_of(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory);
}

void* host_memory(uint64_t bytes) {
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

// Makes a text such as "cuMemAlloc_v2 (its allocation 3)".
std::string numbered(const char* maker) {
  static std::map<std::string, uint64_t>& calls = *new std::map<std::string, uint64_t>;
  return std::string(maker) + " (its allocation " + std::to_string(++calls[maker]) + ")";
}

// Returns whether the device has this much memory, if necessary after waiting for pending frees.
bool fits(Lock* lock, DeviceContext* context, uint64_t bytes) {
  const auto has = [&] { return bytes <= context->gpu->memory - context->used; };
  if (!has() && config().executes()) wait_for_context(lock, context);
  return has();
}

void remember(DeviceContext* context, void* memory, Memory facts) {
  facts.context = context;
  if (!facts.pinned) context->used += facts.size;
  record("allocate", {{"bytes", static_cast<int64_t>(facts.size)},
                      {"device", facts.pinned ? -1 : context->device}});
  state().memory[address_of(memory)] = std::move(facts);
}

// Stream-ordered memory that is freed stays known here, because the last commands may still access
// it. The engine, which knows when it was freed, checks their accesses.
struct Freed {
  uintptr_t begin;
  uint64_t size;
};
std::deque<Freed>& recently_freed() {
  static std::deque<Freed>& freed = *new std::deque<Freed>;
  return freed;
}

void forget(std::map<uintptr_t, Memory>::iterator found, bool counts) {
  constexpr size_t kRemembered = 4096;
  const Memory& memory = found->second;
  record("free", {{"bytes", static_cast<int64_t>(memory.size)},
                  {"device", memory.pinned ? -1 : memory.context->device}});
  if (!memory.pinned && counts) memory.context->used -= memory.size;
  if (memory.ordered && !memory.in_graph && config().executes()) {
    recently_freed().push_back({found->first, memory.size});
    if (recently_freed().size() > kRemembered) recently_freed().pop_front();
  }
  state().memory.erase(found);
}

bool was_ordered(uintptr_t address, uint64_t bytes) {
  return std::any_of(recently_freed().begin(), recently_freed().end(), [&](const Freed& freed) {
    return address >= freed.begin && address - freed.begin <= freed.size &&
           bytes <= freed.size - (address - freed.begin);
  });
}

Side side_of(const void* memory) {
  const Memory* const found = find_memory(address_of(memory), 1);
  if (!found && was_ordered(address_of(memory), 1)) return Side::kDevice;
  return found && !found->pinned ? Side::kDevice : Side::kHost;
}

bool is_valid(const void* memory, Side side, uint64_t bytes) {
  if (side != Side::kDevice) return memory != nullptr;
  return find_memory(address_of(memory), bytes) || was_ordered(address_of(memory), bytes);
}

bool is_pinned(const void* memory, uint64_t bytes) {
  const Memory* const found = find_memory(address_of(memory), bytes);
  return found && found->pinned;
}

Action copy_action(const Copy& copy, std::shared_ptr<std::vector<char>> staged) {
  return [copy, staged](const Operation& operation) {
    const void* const from = staged ? staged->data() : copy.from;
    const bool to_device = copy.to_side == Side::kDevice,
               from_device = copy.from_side == Side::kDevice;
    if (!config().executes() || (!to_device && !from_device)) {
      std::memmove(copy.to, from, copy.bytes);
      return true;
    }
    if (to_device && from_device) return copy_on_device(operation, copy.to, from, copy.bytes);
    return to_device ? copy_to_device(operation, copy.to, from, copy.bytes)
                     : copy_from_device(operation, copy.to, from, copy.bytes);
  };
}

const char* name_of(const Copy& copy) {
  if (copy.to_side != Side::kDevice) {
    return copy.from_side == Side::kDevice ? "a copy to the host" : "a copy on the host";
  }
  return copy.from_side == Side::kDevice ? "a copy on the device" : "a copy to the device";
}

bool must_wait(const Copy& copy, Wait wait, bool staged) {
  if (wait == Wait::kDone) return true;
  const bool to_host = copy.to_side != Side::kDevice;
  if (wait == Wait::kAsync) return to_host && !is_pinned(copy.to, copy.bytes);
  return to_host || (copy.from_side != Side::kDevice && !staged);
}

}  // namespace

Result allocate_memory(Lock* lock, DeviceContext* context, uint64_t bytes, const char* maker,
                       void** out) {
  if (const Result error = forbid_in_capture()) return error;
  if (bytes == 0) return kInvalidValue;
  if (!fits(lock, context, bytes)) return kOutOfMemory;
  *out = config().executes() ? allocate(context->gpu->index, bytes) : host_memory(bytes);
  if (!*out) return kOutOfMemory;
  remember(context, *out, {.size = bytes, .maker = numbered(maker)});
  return kSuccess;
}

Result allocate_pinned(DeviceContext* context, uint64_t bytes, const char* maker, void** out) {
  if (bytes == 0) return kInvalidValue;
  *out = host_memory(bytes);
  if (!*out) return kOutOfMemory;
  remember(context, *out, {.size = bytes, .pinned = true, .maker = numbered(maker)});
  return kSuccess;
}

Result allocate_ordered(Lock* lock, Stream* stream, uint64_t bytes, const char* maker, void** out) {
  DeviceContext* const context = stream->context;
  if (bytes == 0) return kInvalidValue;
  if (!fits(lock, context, bytes)) return kOutOfMemory;
  Memory facts{.size = bytes, .ordered = true, .maker = numbered(maker)};
  if (stream->capture) {
    facts.in_graph = true;
    *out = config().executes() ? allocate(context->gpu->index, bytes) : host_memory(bytes);
    if (*out) stream->capture->commands->memory.push_back(*out);
  } else if (config().executes()) {
    // The address and the first command that may access the memory are known now.
    Operation operation;
    if (const Result error = submit_mark(stream, "an allocation", &operation)) return error;
    *out = allocate(operation, bytes);
  } else {
    *out = host_memory(bytes);
  }
  if (!*out) return kOutOfMemory;
  remember(context, *out, std::move(facts));
  return kSuccess;
}

Result free_memory(Lock* lock, void* memory, bool pinned) {
  if (!memory) return kSuccess;
  auto found = state().memory.find(address_of(memory));
  if (found == state().memory.end() || found->second.pinned != pinned || found->second.in_graph) {
    return kInvalidValue;
  }
  if (config().executes()) {
    wait_for_context(lock, pinned ? nullptr : found->second.context);
    found = state().memory.find(address_of(memory));
    if (found == state().memory.end()) return kInvalidValue;  // another thread has freed it
    if (found->second.context->failed != kSuccess) return found->second.context->failed;
  }
  const bool host = pinned || !config().executes();
  forget(found, true);
  if (host) {
    std::free(memory);
  } else {
    release(memory);
  }
  return kSuccess;
}

Result free_ordered(Stream* stream, void* memory) {
  if (!memory) return kSuccess;
  const auto found = state().memory.find(address_of(memory));
  if (found == state().memory.end() || found->second.pinned) return kInvalidValue;
  if (found->second.in_graph) return stream->capture ? kSuccess : kInvalidValue;
  if (!config().executes()) {
    forget(found, true);
    std::free(memory);
    return kSuccess;
  }
  if (stream->capture) return kInvalidValue;  // every launch of the graph would free it
  DeviceContext* const owner = found->second.context;
  const uint64_t bytes = found->second.size;
  const Action action = [=](const Operation& operation) {
    const bool good = release(operation, memory);
    const Lock lock = lock_state();
    owner->used -= bytes;
    return good;
  };
  const Result error = submit(stream, {"a free", action});
  if (error == kSuccess) forget(found, false);
  return error;
}

void release_graph_memory(void* memory) {
  const auto found = state().memory.find(address_of(memory));
  if (found != state().memory.end()) forget(found, true);
  if (config().executes()) {
    release(memory);
  } else {
    std::free(memory);
  }
}

Result copy_memory(Lock* lock, const std::shared_ptr<Stream>& stream, Copy copy, Wait wait) {
  if (wait != Wait::kAsync) {
    if (const Result error = forbid_in_capture()) return error;
  }
  if (copy.bytes == 0) return kSuccess;
  if (copy.to_side == Side::kUnknown) copy.to_side = side_of(copy.to);
  if (copy.from_side == Side::kUnknown) copy.from_side = side_of(copy.from);
  if (!is_valid(copy.to, copy.to_side, copy.bytes) ||
      !is_valid(copy.from, copy.from_side, copy.bytes)) {
    return kInvalidValue;
  }
  std::shared_ptr<std::vector<char>> staged;
  if (copy.to_side == Side::kDevice && copy.from_side == Side::kHost && !stream->capture &&
      config().executes() && !is_pinned(copy.from, copy.bytes)) {
    const char* const bytes = static_cast<const char*>(copy.from);
    staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.bytes);
  }
  std::shared_ptr<Signal> done;
  Work work{name_of(copy), copy_action(copy, staged), {}};
  if (copy.to_side == Side::kDevice) work.writes.push_back(address_of(copy.to));
  if (const Result error = submit(stream.get(), std::move(work), &done)) return error;
  if (done && must_wait(copy, wait, staged != nullptr)) wait_for(lock, done, stream->clock);
  return stream->context->failed;
}

Result fill_memory(Stream* stream, void* to, uint32_t value, unsigned size, uint64_t count) {
  if (count == 0) return kSuccess;
  if (!is_valid(to, Side::kDevice, count * size)) return kInvalidValue;
  const Action action = [=](const Operation& operation) {
    if (config().executes()) return fill(operation, to, value, size, count);
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<char*>(to) + i * size, &value, size);  // little-endian
    }
    return true;
  };
  return submit(stream, {"a fill", action, {address_of(to)}});
}

}  // namespace softgpu
