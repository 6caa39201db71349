// SPDX-License-Identifier: Apache-2.0
#include "call/memory.h"

#include <cstdlib>
#include <string>

namespace opdock {

void* allocate_on_host(uint64_t bytes, uint64_t alignment) {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

Status allocate_on_device(const Target& target, void* stream, uint64_t bytes, uint64_t alignment,
                          void** memory, void** aligned) {
  const uint64_t room = alignment > kAlignment ? alignment - kAlignment : 0;
  if (bytes > UINT64_MAX - room) {
    return {OPDOCK_OUT_OF_MEMORY, "found " + std::to_string(bytes) + " bytes with alignment " +
                                      std::to_string(alignment) +
                                      ", wanted fewer than 2^64 bytes in all; ask for fewer"};
  }
  Status done = target.driver->allocate(target.device.index, stream, bytes + room, memory);
  if (!done.ok()) return done;
  const uintptr_t address = reinterpret_cast<uintptr_t>(*memory);
  *aligned = reinterpret_cast<void*>((address + alignment - 1) & ~(uintptr_t{alignment} - 1));
  return {};
}

}  // namespace opdock
