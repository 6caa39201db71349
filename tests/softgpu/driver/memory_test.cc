// Tests memory of the stand-in driver: stream-ordered allocation, use after free, and reads of
// memory that was never written.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_test_support.h"

namespace softgpu_test {
namespace {

TEST(Memory, OrderedMemoryMayBeTouchedFromItsAllocationOn) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream(), other = new_stream();
    const CUdeviceptr memory = new_ordered(stream, kCount);
    EXPECT_EQ(launch_fill(memory, kCount, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(copy_back(memory, kCount, stream), CUDA_SUCCESS);
    const CUdeviceptr early = new_ordered(stream, kCount);
    launch_fill(early, kCount, 1, other);
    EXPECT_EQ(synchronize(other), 719);
    EXPECT_TRUE(found("an allocation on stream"));
  });
}

TEST(Memory, OrderedMemoryMayBeTouchedUpToItsFree) {
  for (const bool same_stream : {true, false}) {
    cuda_child(json::object(), [=] {
      const CUstream stream = new_stream(), other = new_stream();
      const CUdeviceptr memory = new_ordered(stream, kCount);
      EXPECT_EQ(launch_fill(memory, kCount, 1, stream), CUDA_SUCCESS);
      EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
      Gate gate;
      hold(stream, &gate);
      EXPECT_EQ(call("cuMemFreeAsync", memory, stream), CUDA_SUCCESS);
      if (same_stream) {
        launch_fill(memory, kCount, 2, stream);
      } else {
        EXPECT_EQ(launch_fill(memory, kCount, 2, other), CUDA_SUCCESS);
        // The memory is still allocated; the free reports the unordered access.
        EXPECT_EQ(synchronize(other), CUDA_SUCCESS);
        // The host waited, so this is not ordered with the free.
        launch_fill(new_memory(4), 1, 2, other);
      }
      gate.open();
      EXPECT_EQ(synchronize(stream), same_stream ? 700 : 719);
      EXPECT_FALSE(findings().empty());
    });
  }
}

TEST(Memory, MemoryThatIsAboutToBeFreedIsWaitedFor) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream();
    for (int i = 0; i < 20; ++i) {  // 10 MiB in total, on a device with 1 MiB
      CUdeviceptr memory = 0;
      ASSERT_EQ(call("cuMemAllocAsync", &memory, size_t{1} << 19, stream), CUDA_SUCCESS);
      EXPECT_EQ(launch_fill(memory, kCount, i, stream), CUDA_SUCCESS);
      EXPECT_EQ(call("cuMemFreeAsync", memory, stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
  });
}

// cuMemFree waits for all work that may use the memory.
TEST(Memory, FreeingWaits) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream();
    const CUdeviceptr memory = new_memory(kBytes);
    EXPECT_EQ(launch_fill(memory, kCount, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(call("cuMemFree_v2", memory), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(call("cuMemFree_v2", memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(findings().empty());
  });
}

TEST(Memory, CopyingWhatNobodyWroteIsFound) {
  cuda_child(json::object(), [] {
    const CUdeviceptr memory = new_memory(kBytes);
    EXPECT_EQ(launch_fill(memory, kCount - 1, 1, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(copy_back(memory, kCount, nullptr), 719);
    EXPECT_TRUE(found("uninitialised"));
  });
}

}  // namespace
}  // namespace softgpu_test
