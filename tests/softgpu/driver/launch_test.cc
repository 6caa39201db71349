// Tests why launches are refused, and what the driver tells the engine about each launch: which
// memory it may not write, which operations it is not ordered with, and how long it may take.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "cuda_test_support.h"

namespace softgpu_test {
namespace {

// The error text of a refused launch names the limit, its value, and the value that was asked for.
TEST(Execute, ARefusedLaunchNamesItsLimit) {
  cuda_child(json::object(), [] {
    CUdeviceptr memory = new_ints(kCount, 0);
    int count = 0, value = 0;
    std::vector<void*> arguments = {&memory, &count, &value};
    const auto refused = [&](CUresult result, std::array<unsigned, 3> grid,
                             std::array<unsigned, 3> block, unsigned shared,
                             std::vector<CUlaunchAttribute> attributes, const char* reason) {
      const CUlaunchConfig config{
          grid[0],  grid[1], grid[2], block[0],          block[1],
          block[2], shared,  nullptr, attributes.data(), static_cast<unsigned>(attributes.size())};
      const char* text = nullptr;
      EXPECT_EQ(call("cuLaunchKernelEx", &config, kernel("fill"), arguments.data(),
                     static_cast<void**>(nullptr)),
                result);
      EXPECT_EQ(call("cuGetErrorString", result, &text), CUDA_SUCCESS);
      EXPECT_NE(std::string(text).find(reason), std::string::npos) << text << "\n" << reason;
    };
    CUlaunchAttribute cluster{}, cooperative{};
    cluster.id = 4;
    cluster.cluster = {4, 1, 1};
    cooperative.id = 2;
    cooperative.value = 1;
    refused(1, {1, 70000, 1}, {32, 1, 1}, 0, {}, "the grid's blocks in y are 70000: at most 65535");
    refused(1, {0, 1, 1}, {32, 1, 1}, 0, {}, "the grid's blocks in x are 0: none is empty");
    refused(1, {1, 1, 1}, {1025, 1, 1}, 0, {}, "the block's threads in x are 1025: at most 1024");
    refused(1, {1, 1, 1}, {1, 1, 65}, 0, {}, "the block's threads in z are 65: at most 64");
    refused(1, {1, 1, 1}, {64, 32, 1}, 0, {}, "the block's threads are 2048: at most 1024");
    refused(1, {1, 1, 1}, {32, 1, 1}, 49153, {}, "more than the 49152 of a block");
    refused(1, {6, 1, 1}, {32, 1, 1}, 0, {cluster},
            "the grid's blocks in x are 6: no multiple of the cluster's 4");
    cluster.cluster = {16, 1, 1};
    refused(912, {16, 1, 1}, {32, 1, 1}, 0, {cluster}, "the cluster's blocks are 16: at most 8");
    refused(720, {65, 1, 1}, {32, 1, 1}, 0, {cooperative},
            "the cooperative grid's blocks are 65: at most 64 are resident at once, on 4 "
            "multiprocessors");
    EXPECT_EQ(call("cuFuncSetAttribute", kernel("fill"), 8, 232449), 1);
    const char* text = nullptr;
    EXPECT_EQ(call("cuGetErrorString", CUresult{1}, &text), CUDA_SUCCESS);
    EXPECT_NE(std::string(text).find("more than the 232448 that a block of sm_90 may ask for"),
              std::string::npos)
        << text;
  });
}

// A programmatic launch may begin before the previous kernel has ended.
TEST(Execute, AProgrammaticLaunchThatDoesNotWait) {
  const auto last_of = [](const std::string& order) {
    const CUdeviceptr sum = new_ints(64, 1), one = new_ints(64, 1);
    const CUstream stream = new_stream();
    for (const char way : order) {
      if (way == 's') {
        EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
        continue;
      }
      CUdeviceptr out = sum, in = one;
      int count = 64;
      CUlaunchAttribute programmatic{};
      programmatic.id = 6;
      programmatic.value = way != 'n';
      const CUlaunchConfig config{1, 1, 1, 64, 1, 1, 0, stream, &programmatic, 1};
      std::vector<void*> arguments = {&out, &in, &count};
      EXPECT_EQ(call("cuLaunchKernelEx", &config, kernel(way == 'w' ? "add_later" : "add"),
                     arguments.data(), static_cast<void**>(nullptr)),
                CUDA_SUCCESS);
    }
    return synchronize(stream);
  };
  // n: ordinary launch; w: programmatic launch that waits; p: programmatic launch that does not
  // wait; s: the host synchronises.
  cuda_child(json::object(), [&] {
    for (const char* order : {"nn", "nw", "nww", "nwn", "nsp", "p", "nsps"})
      EXPECT_EQ(last_of(order), CUDA_SUCCESS) << order;
    EXPECT_TRUE(findings().empty());
  });
  for (const char* order : {"np", "nwp", "nnp"}) {
    cuda_child(json::object(), [&] {
      EXPECT_EQ(last_of(order), 719) << order;
      EXPECT_TRUE(found("race with the launch before: read of 4 bytes that it writes")) << order;
      EXPECT_TRUE(found("other    thread (")) << order;
    });
  }
}

TEST(Execute, WhatAThreadSaysIsOnlyToBeReadIsNotWritten) {
  cuda_child(json::object(), [] {
    const CUdeviceptr memory = new_ints(kCount, 1), input = new_ints(kCount, 1);
    const uint64_t bytes = kBytes;
    EXPECT_EQ(call("cuSoftReadOnly", &input, &bytes, 1u, "an input of fill()"), CUDA_SUCCESS);
    EXPECT_EQ(launch_add(memory, input, kCount, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(call("cuSoftReadOnly", static_cast<const CUdeviceptr*>(nullptr),
                   static_cast<const uint64_t*>(nullptr), 0u, ""),
              CUDA_SUCCESS);
    EXPECT_EQ(launch_fill(input, kCount, 1, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(nullptr), CUDA_SUCCESS);
    // The read-only state at the time of the launch counts, not that at the time of execution.
    call("cuSoftReadOnly", &input, &bytes, 1u, "an input of fill()");
    Gate gate;
    hold(nullptr, &gate);
    EXPECT_EQ(launch_fill(input, kCount, 1, nullptr), CUDA_SUCCESS);
    call("cuSoftReadOnly", static_cast<const CUdeviceptr*>(nullptr),
         static_cast<const uint64_t*>(nullptr), 0u, "");
    gate.open();
    EXPECT_EQ(synchronize(nullptr), 719);
    EXPECT_TRUE(found("write of 4 bytes in memory that is only to be read"));
    EXPECT_TRUE(found("which is an input of fill()"));
  });
}

TEST(Execute, TheBudgetOfStepsIsConfigured) {
  cuda_child({{"steps", 3000}}, [] {
    const CUdeviceptr memory = new_ints(64, 0);
    EXPECT_EQ(launch_fill(memory, 64, 1, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(nullptr), CUDA_SUCCESS);
    CUdeviceptr out = memory;
    int rounds = 100000;
    EXPECT_EQ(launch(kernel("work"), nullptr, {1, 1, 0}, {&out, &rounds}), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(nullptr), 719);
    EXPECT_TRUE(found("a loop without end"));
    EXPECT_TRUE(found("steps    3000, the budget of each block"));
  });
}

// The reader ran first, before anything was written: the finding names both streams and both
// operations.
TEST(Streams, AReaderThatDoesNotWaitForTheWriterIsAStreamRace) {
  for (const bool copies : {false, true}) {
    cuda_child(json::object(), [copies] {
      const CUstream writer = new_stream(), reader = new_stream();
      const CUdeviceptr memory = new_memory(kCount * sizeof(int)), sum = new_ints(kCount, 1);
      kernel("add");
      Gate gate;
      hold(writer, &gate);
      launch_fill(memory, kCount, 5, writer);
      if (copies) {
        EXPECT_EQ(copy_back(memory, kCount, reader), 719);
      } else {
        launch_add(sum, memory, kCount, reader);
      }
      EXPECT_EQ(synchronize(reader), 719);
      gate.open();
      EXPECT_TRUE(found("stream race: read of"));
      EXPECT_TRUE(found("other    fill on stream 1 of cuda:0, which is not done"));
      EXPECT_TRUE(found(copies ? "by       a copy to the host on stream 2 of cuda:0"
                               : "launch   add on stream 2 of cuda:0"));
    });
  }
  // No unordered operation is about to write: a writer that is ordered after the reader is not
  // reported.
  cuda_child(json::object(), [] {
    const CUstream reader = new_stream(), later = new_stream();
    const CUdeviceptr memory = new_memory(kCount * sizeof(int)), sum = new_ints(kCount, 1);
    CUevent event = nullptr;
    call("cuEventCreate", &event, 2u);
    kernel("add");
    Gate gate;
    hold(reader, &gate);
    launch_add(sum, memory, kCount, reader);
    call("cuEventRecord", event, reader);
    call("cuStreamWaitEvent", later, event, 0u);
    launch_fill(memory, kCount, 5, later);
    gate.open();
    EXPECT_EQ(synchronize(reader), 719);
    EXPECT_TRUE(found("of uninitialised memory"));
    EXPECT_FALSE(found("stream race"));
  });
}

}  // namespace
}  // namespace softgpu_test
