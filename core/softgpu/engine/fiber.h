// Fibers: stacks of their own between which one OS thread goes back and forth.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace softgpu {

// Where a fiber, or the thread that runs fibers, is while another one runs.
struct Context {
  void* stack_pointer = nullptr;
  const void* stack = nullptr;  // its lowest byte; of a thread: learned at the first switch
  size_t stack_bytes = 0;
  void* sanitizer = nullptr;  // AddressSanitizer's state of it
};

// The next switch to `context` calls `entry` on that stack; `entry` never returns.
void prepare_fiber(Context* context, void* stack, size_t bytes, void (*entry)());

// Returns when somebody switches back to `from`. The thread's own context is `from` before it is
// ever `to`.
void switch_fiber(Context* from, Context* to);
// The same, but nobody comes back to `from`.
[[noreturn]] void leave_fiber(Context* from, Context* to);

// The first thing that an entry does. `previous`: who switched here.
void enter_fiber(Context* previous);

// Forgets what a fiber that will not go on has on its stack.
void forget_fiber(const Context& context);

}  // namespace softgpu
