// The only code of a kernel library that is not the plugin's: it passes every load, every store and
// every call of the vocabulary to the engine. Compiled without -fsanitize=thread and linked into
// each library.
// SPDX-License-Identifier: Apache-2.0
#include "softgpu/device_calls.h"

using softgpu::Word;

#define HIDDEN extern "C" __attribute__((visibility("hidden")))
#define PC __builtin_extract_return_addr(__builtin_return_address(0))

HIDDEN const softgpu::Hooks* softgpu_hooks;
const softgpu::Hooks* softgpu_hooks = nullptr;

namespace {

using softgpu::this_lane;

// Accesses to the thread's own registers and local memory are not reported.
inline __attribute__((always_inline)) bool own(const void* address) {
  const Word frame = reinterpret_cast<Word>(__builtin_frame_address(0));
  return ((reinterpret_cast<Word>(address) ^ frame) & ~(softgpu::kLaneBytes - 1)) == 0;
}

}  // namespace

// The compiler calls these before each load and store under -fsanitize=thread.
#define ACCESSES(N)                                                                                \
  HIDDEN void __tsan_read##N(void* address) {                                                      \
    if (!own(address)) softgpu_hooks->access(this_lane(), address, N, 0, PC);                      \
  }                                                                                                \
  HIDDEN void __tsan_write##N(void* address) {                                                     \
    if (!own(address)) softgpu_hooks->access(this_lane(), address, N, softgpu::kWrite, PC);        \
  }                                                                                                \
  HIDDEN void __tsan_unaligned_read##N(void* address) {                                            \
    if (!own(address)) softgpu_hooks->access(this_lane(), address, N, softgpu::kAnyAlignment, PC); \
  }                                                                                                \
  HIDDEN void __tsan_unaligned_write##N(void* address) {                                           \
    if (!own(address))                                                                             \
      softgpu_hooks->access(this_lane(), address, N, softgpu::kWrite | softgpu::kAnyAlignment,     \
                            PC);                                                                   \
  }                                                                                                \
  HIDDEN void __tsan_read_write##N(void* address) {                                                \
    if (own(address)) return;                                                                      \
    softgpu_hooks->access(this_lane(), address, N, 0, PC);                                         \
    softgpu_hooks->access(this_lane(), address, N, softgpu::kWrite, PC);                           \
  }                                                                                                \
  HIDDEN void __tsan_unaligned_read_write##N(void* address) {                                      \
    if (own(address)) return;                                                                      \
    softgpu_hooks->access(this_lane(), address, N, softgpu::kAnyAlignment, PC);                    \
    softgpu_hooks->access(this_lane(), address, N, softgpu::kWrite | softgpu::kAnyAlignment, PC);  \
  }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

HIDDEN void __tsan_read_range(void* address, Word bytes) {
  if (!own(address) && bytes)
    softgpu_hooks->access(this_lane(), address, bytes, softgpu::kAnyAlignment, PC);
}
HIDDEN void __tsan_write_range(void* address, Word bytes) {
  if (!own(address) && bytes)
    softgpu_hooks->access(this_lane(), address, bytes, softgpu::kWrite | softgpu::kAnyAlignment,
                          PC);
}
HIDDEN void __tsan_vptr_read(void**) {}
HIDDEN void __tsan_vptr_update(void**, void*) {}
HIDDEN void __tsan_func_entry(void*) {}
HIDDEN void __tsan_func_exit() {}
HIDDEN void __tsan_init() {}

// The compiler calls this in each stretch of code without a branch under
// -fsanitize-coverage=trace-pc. The hooks are NULL while the engine asks a library for its kernels.
HIDDEN void __sanitizer_cov_trace_pc() {
  if (softgpu_hooks && --*this_lane()->steps_left == 0)
    softgpu_hooks->out_of_steps(this_lane(), PC);
}

// The compiler calls this before it converts a floating-point number to an integer that cannot hold
// it, under -fsanitize=float-cast-overflow.
HIDDEN void __ubsan_handle_float_cast_overflow(void*, Word) {
  softgpu_hooks->bad_conversion(this_lane(), PC);
}

// The compiler calls this before a division that would trap on a CPU, under
// -fsanitize=integer-divide-by-zero and signed-integer-overflow. `right`: the divisor, or its
// address if it has more than 64 bits.
HIDDEN void __ubsan_handle_divrem_overflow(void*, Word, Word right) {
  softgpu_hooks->bad_division(this_lane(), right == 0, PC);
}
// Other integer operations wrap on a GPU, as they do on the CPU with -fwrapv. Some versions of
// clang still call these functions then.
HIDDEN void __ubsan_handle_add_overflow(void*, Word, Word) {}
HIDDEN void __ubsan_handle_sub_overflow(void*, Word, Word) {}
HIDDEN void __ubsan_handle_mul_overflow(void*, Word, Word) {}
HIDDEN void __ubsan_handle_negate_overflow(void*, Word) {}

// Copies of whole objects, which the compiler leaves to the C library. The loops are volatile, so
// that the compiler does not turn them into calls of the same functions.
namespace {

void* copy_bytes(void* to, const void* from, Word bytes, bool backwards) {
  if (((reinterpret_cast<Word>(to) | reinterpret_cast<Word>(from) | bytes) & 7) == 0 &&
      !backwards) {
    volatile Word* out = static_cast<Word*>(to);
    const volatile Word* in = static_cast<const Word*>(from);
    for (Word i = 0; i < bytes / 8; ++i) out[i] = in[i];
    return to;
  }
  volatile unsigned char* out = static_cast<unsigned char*>(to);
  const volatile unsigned char* in = static_cast<const unsigned char*>(from);
  for (Word i = 0; i < bytes; ++i) {
    const Word at = backwards ? bytes - 1 - i : i;
    out[at] = in[at];
  }
  return to;
}

void* copy(void* to, const void* from, Word bytes, const void* pc) {
  if (bytes && !own(from))
    softgpu_hooks->access(this_lane(), from, bytes, softgpu::kAnyAlignment, pc);
  if (bytes && !own(to))
    softgpu_hooks->access(this_lane(), to, bytes, softgpu::kWrite | softgpu::kAnyAlignment, pc);
  return copy_bytes(to, from, bytes, to > from);
}

void* set(void* to, int value, Word bytes, const void* pc) {
  if (bytes && !own(to))
    softgpu_hooks->access(this_lane(), to, bytes, softgpu::kWrite | softgpu::kAnyAlignment, pc);
  volatile unsigned char* out = static_cast<unsigned char*>(to);
  for (Word i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(value);
  return to;
}

}  // namespace

HIDDEN void* memcpy(void* to, const void* from, Word bytes) {
  return copy(to, from, bytes, PC);
}
HIDDEN void* memmove(void* to, const void* from, Word bytes) {
  return copy(to, from, bytes, PC);
}
HIDDEN void* memset(void* to, int value, Word bytes) {
  return set(to, value, bytes, PC);
}
HIDDEN void* __tsan_memcpy(void* to, const void* from, Word bytes) {
  return copy(to, from, bytes, PC);
}
HIDDEN void* __tsan_memmove(void* to, const void* from, Word bytes) {
  return copy(to, from, bytes, PC);
}
HIDDEN void* __tsan_memset(void* to, int value, Word bytes) {
  return set(to, value, bytes, PC);
}

// ---- the vocabulary's calls

void softgpu_block_barrier() {
  softgpu_hooks->block_barrier(this_lane(), PC);
}
void softgpu_cluster_barrier() {
  softgpu_hooks->cluster_barrier(this_lane(), PC);
}
unsigned long long softgpu_warp(softgpu::WarpOp op, unsigned long long value, int argument) {
  return softgpu_hooks->warp(this_lane(), op, value, argument, PC);
}
void* softgpu_shared(const void* site, Word bytes, Word alignment) {
  return softgpu_hooks->shared(this_lane(), site, bytes, alignment, PC);
}
void* softgpu_dynamic_shared() {
  return softgpu_hooks->dynamic_shared(this_lane());
}
void* softgpu_cluster_shared(const void* address, unsigned rank) {
  return softgpu_hooks->cluster_shared(this_lane(), address, rank, PC);
}
unsigned long long softgpu_atomic(softgpu::AtomicOp op, void* address, unsigned bytes,
                                  unsigned long long value, unsigned long long expected) {
  return softgpu_hooks->atomic(this_lane(), op, address, bytes, value, expected, PC);
}
// Defined here, because the compiler would split the copy into smaller accesses where it can.
void softgpu_move16(void* to, const void* from) {
  if (!own(from)) softgpu_hooks->access(this_lane(), from, 16, 0, PC);
  if (!own(to)) softgpu_hooks->access(this_lane(), to, 16, softgpu::kWrite, PC);
  copy_bytes(to, from, 16, false);
}
void softgpu_fence() {
  softgpu_hooks->fence(this_lane(), PC);
}
void softgpu_copy_async(void* to, const void* from) {
  softgpu_hooks->copy_async(this_lane(), to, from, PC);
}
void softgpu_copy_commit() {
  softgpu_hooks->copy_commit(this_lane(), PC);
}
void softgpu_copy_wait(unsigned left) {
  softgpu_hooks->copy_wait(this_lane(), left, PC);
}
void softgpu_trap() {
  softgpu_hooks->trap(this_lane(), PC);
}
void softgpu_launch_wait() {
  softgpu_hooks->launch_wait(this_lane(), PC);
}
