// The host's threads for CPU ops: extension "opdock.parallel/1".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "opdock/plugin.h"

namespace opdock {

// How many threads share the work of one parallel_for, the caller's own included. Takes effect for
// workers not yet started; 0: the cores this process may use. Any thread.
void set_parallel_threads(uint32_t count);
uint32_t parallel_threads();

// opdock_parallel.parallel_for. Workers start on first use, and again in a forked child.
void parallel_for(uint64_t count, uint64_t grain,
                  void (*body)(void* context, uint64_t begin, uint64_t end), void* context);

// The extension's table; static.
const opdock_parallel* parallel_extension();

}  // namespace opdock
