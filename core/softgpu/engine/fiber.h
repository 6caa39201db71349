// Fibers: several stacks that one OS thread switches between.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace softgpu {

// The saved state of a fiber, or of the thread that runs fibers, while another one runs.
struct Context {
  void* stack_pointer = nullptr;
  const void* stack = nullptr;  // lowest byte; for a thread: set at the first switch
  size_t stack_bytes = 0;
  void* sanitizer = nullptr;  // AddressSanitizer's state for it
};

// Makes the next switch to `context` call `entry` on this stack; `entry` must never return.
void prepare_fiber(Context* context, void* stack, size_t bytes, void (*entry)());

// Switches to `to`, and returns when another fiber switches back to `from`. The thread's own
// context must be `from` before it is first used as `to`.
void switch_fiber(Context* from, Context* to);
// Does the same, but no fiber switches back to `from`.
[[noreturn]] void leave_fiber(Context* from, Context* to);

// Must be called first by an entry. `previous`: the context that switched to it.
void enter_fiber(Context* previous);

// Tells AddressSanitizer to forget the stack of a fiber that will not continue.
void forget_fiber(const Context& context);

}  // namespace softgpu
