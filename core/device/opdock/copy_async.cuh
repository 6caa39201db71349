// Asynchronous copies from global to shared memory. Before sm_80 and on AMD GPUs they are
// synchronous.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

#if defined(OPDOCK_SOFT)
#define OPDOCK_COPIES_ASYNC (OPDOCK_SOFT_ARCH >= 800)
#else
#define OPDOCK_COPIES_ASYNC (!OPDOCK_HIP && __CUDA_ARCH__ >= 800)
#endif

namespace opdock {

// Starts a copy of 16 bytes; both addresses are aligned to 16 bytes. This thread may read the copy
// after copy_async_wait(), other threads of the block after a barrier that follows it.
OPDOCK_DEVICE void copy_async16(void* shared, const void* global) {
#if !OPDOCK_COPIES_ASYNC
  store16(shared, load16(global));
#elif defined(OPDOCK_SOFT)
  softgpu_copy_async(shared, global);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(global))
               : "memory");
#endif
}
// Makes a group of the copies that were started since the last commit.
OPDOCK_DEVICE void copy_async_commit() {
#if !OPDOCK_COPIES_ASYNC
#elif defined(OPDOCK_SOFT)
  softgpu_copy_commit();
#else
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
// Waits until all of this thread's groups except the newest `Groups` have arrived.
template <int Groups>
OPDOCK_DEVICE void copy_async_wait() {
#if !OPDOCK_COPIES_ASYNC
#elif defined(OPDOCK_SOFT)
  softgpu_copy_wait(Groups);
#else
  asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
#endif
}

}  // namespace opdock
