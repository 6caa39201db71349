// Programmatic dependent launch: a kernel may begin before the previous launch on its stream has
// ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"
#include "opdock/target.cuh"

namespace opdock {

// Waits until the previous launch has ended. Then this thread sees what that launch has written,
// and so do the threads that meet this one at a barrier afterwards. Call it before the first access
// to anything that the previous launch touches, including its inputs if this kernel writes them.
// Before sm_90, on AMD GPUs, and in a launch that is not programmatic there is nothing to wait for.
OPDOCK_DEVICE void launch_wait() {
#if defined(OPDOCK_SOFT)
  softgpu_launch_wait();
#elif !OPDOCK_HIP && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// Lets the next launch on the stream, if it is programmatic, begin once each block of this launch
// has called this or has ended; without this call, it begins once all blocks have ended. Before its
// launch_wait(), the next launch must not touch what this launch writes, and must not write what
// this launch reads.
OPDOCK_DEVICE void launch_dependents() {
#if !defined(OPDOCK_SOFT) && !OPDOCK_HIP && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

// Begins a kernel: call it before the kernel touches any memory, so that launches of at most
// kMaxEarlyBlocks blocks may be programmatic. It first waits, then lets the next launch begin: a
// kernel that runs at the same time as this one then finds that everything before this launch is
// done, even if it does not call launch_wait() itself. Larger grids skip both, because blocks that
// trigger dependents launch at only about 0.8 per nanosecond.
OPDOCK_DEVICE void pdl_wait_and_trigger() {
  if (grid_blocks() > kMaxEarlyBlocks) return;
  launch_wait();
  launch_dependents();
}

}  // namespace opdock
