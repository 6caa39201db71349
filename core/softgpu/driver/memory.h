// Device and pinned host memory. It is the engine's if kernels are executed, else the host's own.
// The drivers' rules say which memory may be accessed and freed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream.h"

namespace softgpu {

// The mutex must be held for all functions below; those that may wait take its lock as a parameter.
// `maker` is the API function, for reports of leaks.

// Returns kOutOfMemory if the device has no more memory, after waiting for pending stream-ordered
// frees.
Result allocate_memory(Lock* lock, DeviceContext* context, uint64_t bytes, const char* maker,
                       void** out);
Result allocate_pinned(DeviceContext* context, uint64_t bytes, const char* maker, void** out);
// Allocates in stream order; the caller gets the address immediately. While the stream is being
// captured the memory belongs to the graph.
Result allocate_ordered(Lock* lock, Stream* stream, uint64_t bytes, const char* maker, void** out);

// Waits for the work of the memory's context before it frees, as the drivers do.
Result free_memory(Lock* lock, void* memory, bool pinned);
Result free_ordered(Stream* stream, void* memory);

void release_graph_memory(void* memory);

enum class Side { kHost, kDevice, kUnknown };  // kUnknown: derived from the address

struct Copy {
  void* to = nullptr;
  Side to_side = Side::kUnknown;
  const void* from = nullptr;
  Side from_side = Side::kUnknown;
  uint64_t bytes = 0;
};
// How long the caller waits for a copy. kAsync, for the drivers' asynchronous calls: pageable host
// memory is read immediately, and copies to pageable host memory are waited for. kSync, for CUDA's
// synchronous calls: pageable host memory is read immediately and the rest of such a copy happens
// in stream order, copies between devices are not waited for, and all other copies are. kDone:
// every copy is waited for.
enum class Wait { kAsync, kSync, kDone };
Result copy_memory(Lock* lock, const std::shared_ptr<Stream>& stream, Copy copy, Wait wait);

// Fills `count` elements of 1, 2 or 4 bytes (`size`).
Result fill_memory(Stream* stream, void* to, uint32_t value, unsigned size, uint64_t count);

}  // namespace softgpu
