// SPDX-License-Identifier: Apache-2.0
#include "pending.h"

#include <algorithm>

#include "stream.h"

namespace softgpu {
namespace {

bool is_ordered_after(const Operation& operation, const Operation& other) {
  return other.stream < operation.before.size() && operation.before[other.stream] >= other.number;
}

}  // namespace

std::vector<std::string> pending_writes_of(const Operation& reader, uintptr_t address) {
  std::vector<std::string> found;
  Allocation allocation;
  if (!find_allocation(address, 1, &allocation)) return found;
  const Lock lock = lock_state();
  for (const std::shared_ptr<Stream>& stream : state().all_streams) {
    if (stream->number == reader.stream) continue;
    for (const Command& command : stream->queue) {
      const Operation& other = command.operation;
      if (is_ordered_after(reader, other) || is_ordered_after(other, reader)) continue;
      const bool writes =
          std::any_of(command.writes.begin(), command.writes.end(),
                      [&](uintptr_t at) { return at - allocation.begin < allocation.bytes; });
      if (writes) found.push_back(other.what);
    }
  }
  return found;
}

}  // namespace softgpu
