// The host's threads for CPU ops: extension "opdock.parallel/2".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "opdock/parallel.h"

namespace opdock {

// Returns the number of cores that this process may use, as of the first call. Any thread.
uint32_t cpu_cores();

// Implements opdock_parallel.parallel_for with `threads` threads, including the caller. 0: as many
// as OpenMP's runtime would use (call/openmp.h), or one per usable core if there is no such
// runtime. The threads are the runtime's, or workers that start on first use, and again in a forked
// child.
void parallel_for(uint32_t threads, uint64_t count, uint64_t grain,
                  void (*body)(void* context, uint64_t begin, uint64_t end), void* context);

// The extension's table; static.
const opdock_parallel* parallel_extension();

}  // namespace opdock
