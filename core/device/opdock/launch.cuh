// Programmatic launches: a kernel that may begin while the launch before it on its stream has not
// ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"
#include "opdock/target.cuh"

namespace opdock {

// Waits until the launch before has ended, and sees what it has written; so do the threads that
// meet this one at a barrier afterwards. Comes before the first access to anything that the launch
// before touches, its inputs too if they are to be written. Before sm_90, on AMD GPUs, and in a
// launch that is not programmatic there is nothing to wait for.
OPDOCK_DEVICE void launch_wait() {
#if defined(OPDOCK_SOFT)
  softgpu_launch_wait();
#elif !OPDOCK_HIP && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// Lets the next launch of the stream, if it is programmatic, begin once each block of this one has
// come here or has ended; without it, once all have ended. What that one may touch before its
// launch_wait() is nothing that this one writes, nor writes what this one reads.
OPDOCK_DEVICE void launch_dependents() {
#if !defined(OPDOCK_SOFT) && !OPDOCK_HIP && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

// What a kernel begins with, before it touches any memory, so that launches of at most
// kMostEarlyBlocks blocks may be programmatic. It waits first: what runs beside it then finds all
// done that came before it, and not only by a launch_wait() of its own. Not in larger grids: a GPU
// starts blocks that let others begin no faster than about 0.8 a nanosecond.
OPDOCK_DEVICE void launch_turn() {
  if (grid_blocks() > kMostEarlyBlocks) return;
  launch_wait();
  launch_dependents();
}

}  // namespace opdock
