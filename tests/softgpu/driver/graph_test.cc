// Tests stream capture and graphs of the stand-in driver.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_test_support.h"

namespace softgpu_test {
namespace {

TEST(Graphs, AGraphIsExecutedEachTimeItIsLaunched) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream(), branch = new_stream();
    const CUdeviceptr sum = new_ints(kCount, 0), one = new_ints(kCount, 1);
    CUgraph graph = nullptr;
    CUgraphExec instance = nullptr;
    CUevent forked = nullptr, joined = nullptr;
    int status = 0;
    call("cuEventCreate", &forked, 2u);
    call("cuEventCreate", &joined, 2u);
    kernel("add");
    ASSERT_EQ(call("cuStreamBeginCapture_v2", stream, 0), CUDA_SUCCESS);
    EXPECT_EQ(launch_add(sum, one, kCount, stream), CUDA_SUCCESS);
    EXPECT_EQ(call("cuEventRecord", forked, stream), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamWaitEvent", branch, forked, 0u), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamIsCapturing", branch, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, 1);
    EXPECT_EQ(call("cuEventQuery", forked), 907);
    const CUdeviceptr scratch = new_ordered(branch, kCount);  // memory of the graph
    EXPECT_EQ(call("cuMemsetD32Async", scratch, 2u, size_t{kCount}, branch), CUDA_SUCCESS);
    EXPECT_EQ(launch_add(sum, scratch, kCount, branch), CUDA_SUCCESS);
    EXPECT_EQ(call("cuMemFreeAsync", scratch, branch), CUDA_SUCCESS);
    EXPECT_EQ(call("cuEventRecord", joined, branch), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamWaitEvent", stream, joined, 0u), CUDA_SUCCESS);
    ASSERT_EQ(call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(sum, kCount), std::vector<int>(kCount, 0));
    ASSERT_EQ(call("cuGraphInstantiateWithFlags", &instance, graph, 0ull), CUDA_SUCCESS);
    EXPECT_EQ(call("cuGraphDestroy", graph), CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(call("cuGraphLaunch", instance, stream), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(sum, kCount), std::vector<int>(kCount, 9));
    EXPECT_EQ(call("cuGraphExecDestroy", instance), CUDA_SUCCESS);
    EXPECT_EQ(copy_back(scratch, kCount, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(findings().empty());
  });
}

TEST(Graphs, WhatACaptureForbidsEndsIt) {
  for (const std::string what : {"synchronize", "allocate", "legacy"}) {
    cuda_child(json::object(), [what] {
      const CUstream stream = new_stream(0);
      const CUdeviceptr memory = new_ints(kCount, 0);
      kernel("fill");
      ASSERT_EQ(call("cuStreamBeginCapture_v2", stream, 0), CUDA_SUCCESS);
      CUdeviceptr more = 0;
      if (what == "synchronize") {
        EXPECT_EQ(synchronize(stream), 900);
      }
      if (what == "allocate") {
        EXPECT_EQ(call("cuMemAlloc_v2", &more, size_t{8}), 900);
      }
      if (what == "legacy") {
        EXPECT_EQ(launch_fill(memory, kCount, 1, nullptr), 906);
      }
      EXPECT_EQ(launch_fill(memory, kCount, 1, stream), 901);
      CUgraph graph = nullptr;
      EXPECT_EQ(call("cuStreamEndCapture", stream, &graph), 901);
      EXPECT_EQ(graph, nullptr);
      EXPECT_EQ(launch_fill(memory, kCount, 1, stream), CUDA_SUCCESS);
      EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
    });
  }
}

}  // namespace
}  // namespace softgpu_test
