// SPDX-License-Identifier: Apache-2.0
#include "fused/device_traits.h"

#include <algorithm>

#include "opdock/element_threads.hpp"
#include "opdock/host_device.cuh"

namespace opdock {

formula::DeviceTraits device_traits(const opdock_device_facts& facts) {
  formula::DeviceTraits traits;
  traits.multiprocessors = facts.multiprocessors;
  traits.warp_size = facts.warp_size;
  traits.max_threads = facts.max_threads_per_block;
  traits.has_clusters = facts.type == OPDOCK_CUDA && facts.arch_major >= 9;
  if (facts.type == OPDOCK_CUDA)
    traits.element_threads = std::min<int64_t>(element_threads(facts, formula::kElementThreads),
                                               formula::kElementThreads);
  return traits;
}

uint32_t launch_flags(const opdock_device_facts& facts, const formula::DeviceLaunch& launch) {
  if (facts.type != OPDOCK_CUDA || facts.arch_major < 9) return 0;
  const int64_t blocks = int64_t{launch.grid[0]} * launch.grid[1];
  // All blocks of the launch run at once, and leave room for others.
  const int64_t room = int64_t{facts.multiprocessors} * 1024;
  const bool is_small = blocks <= kMaxEarlyBlocks && blocks * launch.threads <= room;
  return is_small ? OPDOCK_LAUNCH_PROGRAMMATIC : 0;
}

}  // namespace opdock
