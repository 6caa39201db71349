// Tests what follows from a GPU's facts for launches of formulas.
// SPDX-License-Identifier: Apache-2.0
#include "fused/device_traits.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

opdock_device_facts facts(int32_t type, uint32_t major, uint64_t gigabytes) {
  opdock_device_facts facts{};
  facts.struct_size = sizeof facts;
  facts.type = type;
  facts.arch_major = major;
  facts.warp_size = 32;
  facts.multiprocessors = 132;
  facts.max_threads_per_block = 1024;
  facts.memory_bytes = gigabytes << 30;
  return facts;
}

TEST(DeviceTraits, BlocksAreAsMeasured) {
  EXPECT_EQ(device_traits(facts(OPDOCK_CUDA, 9, 140)).element_threads, 128);  // H200
  EXPECT_EQ(device_traits(facts(OPDOCK_CUDA, 9, 80)).element_threads, 512);
  EXPECT_EQ(device_traits(facts(OPDOCK_CUDA, 10, 180)).element_threads, 512);
  EXPECT_EQ(device_traits(facts(OPDOCK_ROCM, 9, 128)).element_threads, 256);
}

TEST(DeviceTraits, ClustersBeginWithSm90) {
  EXPECT_TRUE(device_traits(facts(OPDOCK_CUDA, 9, 80)).has_clusters);
  EXPECT_FALSE(device_traits(facts(OPDOCK_CUDA, 8, 80)).has_clusters);
  EXPECT_FALSE(device_traits(facts(OPDOCK_ROCM, 9, 80)).has_clusters);
}

TEST(DeviceTraits, SmallLaunchesMayBeginEarly) {
  formula::DeviceLaunch launch;
  launch.grid[0] = 528;
  launch.threads = 256;
  EXPECT_EQ(launch_flags(facts(OPDOCK_CUDA, 9, 80), launch), OPDOCK_LAUNCH_PROGRAMMATIC);
  EXPECT_EQ(launch_flags(facts(OPDOCK_CUDA, 8, 80), launch), 0u);
  EXPECT_EQ(launch_flags(facts(OPDOCK_ROCM, 9, 80), launch), 0u);
  launch.grid[0] = 529;
  EXPECT_EQ(launch_flags(facts(OPDOCK_CUDA, 9, 80), launch), 0u);
  launch.threads = 64;
  EXPECT_EQ(launch_flags(facts(OPDOCK_CUDA, 9, 80), launch), OPDOCK_LAUNCH_PROGRAMMATIC);
  launch.grid[0] = 2049;  // kernels of more blocks do not wait
  EXPECT_EQ(launch_flags(facts(OPDOCK_CUDA, 9, 80), launch), 0u);
}

}  // namespace
}  // namespace opdock
