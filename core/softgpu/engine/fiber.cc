// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define SOFTGPU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SOFTGPU_ASAN 1
#endif
#endif
#ifdef SOFTGPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// softgpu_switch(void** save, void* to): pushes the registers that a call preserves, stores the
// stack pointer in *save, sets it to `to` and pops the same registers from there.
#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.hidden softgpu_switch
.globl softgpu_switch
.type softgpu_switch, @function
softgpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size softgpu_switch, .-softgpu_switch
)");
static constexpr size_t kReturnWord = 6;  // index of the entry's address
static constexpr size_t kFrameWords = 8;  // aligns the stack as at the start of a function
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.hidden softgpu_switch
.globl softgpu_switch
.type softgpu_switch, %function
softgpu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size softgpu_switch, .-softgpu_switch
)");
static constexpr size_t kReturnWord = 11;  // x30
static constexpr size_t kFrameWords = 20;
#else
#error "the software GPU's fibers know x86-64 and aarch64"
#endif

extern "C" __attribute__((visibility("hidden"))) void softgpu_switch(void** save, void* to);

namespace softgpu {

void prepare_fiber(Context* context, void* stack, size_t bytes, void (*entry)()) {
  auto* const end = reinterpret_cast<uintptr_t*>(static_cast<char*>(stack) + bytes);
  uintptr_t* const frame = end - kFrameWords;
  std::memset(frame, 0, kFrameWords * sizeof(*frame));
  frame[kReturnWord] = reinterpret_cast<uintptr_t>(entry);
  context->stack_pointer = frame;
  context->stack = stack;
  context->stack_bytes = bytes;
  context->sanitizer = nullptr;
}

void switch_fiber(Context* from, Context* to) {
#ifdef SOFTGPU_ASAN
  __sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->stack_bytes);
#endif
  softgpu_switch(&from->stack_pointer, to->stack_pointer);
#ifdef SOFTGPU_ASAN
  __sanitizer_finish_switch_fiber(from->sanitizer, nullptr, nullptr);
#endif
}

void leave_fiber(Context* from, Context* to) {
#ifdef SOFTGPU_ASAN
  __sanitizer_start_switch_fiber(nullptr, to->stack, to->stack_bytes);
#endif
  softgpu_switch(&from->stack_pointer, to->stack_pointer);
  std::abort();
}

void enter_fiber(Context* previous) {
#ifdef SOFTGPU_ASAN
  const void* stack = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (!previous->stack) {
    previous->stack = stack;
    previous->stack_bytes = bytes;
  }
#else
  (void)previous;
#endif
}

void forget_fiber(const Context& context) {
#ifdef SOFTGPU_ASAN
  __asan_unpoison_memory_region(context.stack, context.stack_bytes);
#else
  (void)context;
#endif
}

}  // namespace softgpu
