// Device and pinned host memory: the engine's where kernels are executed, else the host's own, with
// the drivers' rules about what may be touched and freed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream.h"

namespace softgpu {

// Of all these the mutex must be held, by the lock that some take since they wait. `maker` is the
// API function, for reports of leaks.

// kOutOfMemory where the device has no more; memory that is about to be freed in a stream's order
// is waited for first.
Result allocate_memory(Lock* lock, DeviceContext* context, uint64_t bytes, const char* maker,
                       void** out);
Result allocate_pinned(DeviceContext* context, uint64_t bytes, const char* maker, void** out);
// In the stream's order: at once for the caller. While the stream captures it belongs to the graph.
Result allocate_ordered(Lock* lock, Stream* stream, uint64_t bytes, const char* maker, void** out);

// Waits for the work of the memory's context, as the drivers do.
Result free_memory(Lock* lock, void* memory, bool pinned);
Result free_ordered(Stream* stream, void* memory);

void release_graph_memory(void* memory);

enum class Side { kHost, kDevice, kUnknown };  // kUnknown: the address decides

struct Copy {
  void* to = nullptr;
  Side to_side = Side::kUnknown;
  const void* from = nullptr;
  Side from_side = Side::kUnknown;
  uint64_t bytes = 0;
};
// Whether the caller waits for a copy: kAsync as the drivers' asynchronous calls (pageable host
// memory is read at once, and what is written to it is waited for), kSync as CUDA's synchronous
// ones (pageable host memory is read at once and the rest happens in the stream's order; between
// devices nothing is waited for), kDone always.
enum class Wait { kAsync, kSync, kDone };
Result copy_memory(Lock* lock, const std::shared_ptr<Stream>& stream, Copy copy, Wait wait);

// `count` elements of `size` bytes, 1, 2 or 4.
Result fill_memory(Stream* stream, void* to, uint32_t value, unsigned size, uint64_t count);

}  // namespace softgpu
