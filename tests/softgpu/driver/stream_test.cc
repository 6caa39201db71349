// Tests streams and events of the stand-in driver: they are asynchronous to the caller, and ordered
// only where CUDA guarantees it. A missing dependency shows as a finding and as a wrong number.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "cuda_test_support.h"
#include "support/sanitizer.h"

namespace softgpu_test {
namespace {

CUevent new_event() {
  CUevent event = nullptr;
  EXPECT_EQ(call("cuEventCreate", &event, 0u), CUDA_SUCCESS);
  return event;
}

TEST(Streams, RunBehindTheirCaller) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream();
    const CUdeviceptr memory = new_ints(kCount, 1);
    Gate gate;
    EXPECT_EQ(call("cuStreamQuery", stream), CUDA_SUCCESS);
    EXPECT_EQ(hold(stream, &gate), CUDA_SUCCESS);
    EXPECT_EQ(launch_fill(memory, kCount, 5, stream), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamQuery", stream), CUDA_ERROR_NOT_READY);
    gate.open();
    EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamQuery", stream), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(memory, kCount), std::vector<int>(kCount, 5));
    EXPECT_TRUE(findings().empty());
  });
}

// The reader does not wait for the writer: it reads the old values, and the writer then overwrites
// what an unordered operation reads.
TEST(Streams, AMissingDependencyShows) {
  cuda_child(json::object(), [] {
    const CUstream writer = new_stream(), reader = new_stream();
    const CUdeviceptr memory = new_ints(kCount, 1);
    std::vector<int> seen(kCount);
    Gate gate;
    hold(writer, &gate);
    EXPECT_EQ(launch_fill(memory, kCount, 5, writer), CUDA_SUCCESS);
    EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", static_cast<void*>(seen.data()), memory,
                   kCount * sizeof(int), reader),
              CUDA_SUCCESS);
    EXPECT_EQ(seen, std::vector<int>(kCount, 1));
    gate.open();
    EXPECT_EQ(synchronize(writer), 719);
    EXPECT_TRUE(found("stream race"));
    EXPECT_TRUE(found("fill on stream"));
  });
}

// The race is found even if the operations happen to run in the right order.
TEST(Streams, AMissingDependencyShowsInTheRightOrderToo) {
  cuda_child(json::object(), [] {
    const CUstream writer = new_stream(), reader = new_stream();
    const CUdeviceptr memory = new_memory(kCount * sizeof(int));
    std::vector<int> seen(kCount);
    EXPECT_EQ(launch_fill(memory, kCount, 5, writer), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", static_cast<void*>(seen.data()), memory,
                   kCount * sizeof(int), reader),
              719);
    EXPECT_TRUE(found("stream race"));
  });
}

TEST(Streams, AnEventMendsIt) {
  cuda_child(json::object(), [] {
    const CUstream writer = new_stream(), reader = new_stream();
    const CUdeviceptr memory = new_ints(kCount, 1);
    const CUevent written = new_event();
    std::vector<int> seen(kCount);
    Gate gate;
    hold(writer, &gate);
    EXPECT_EQ(launch_fill(memory, kCount, 5, writer), CUDA_SUCCESS);
    EXPECT_EQ(call("cuEventRecord", written, writer), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamWaitEvent", reader, written, 0u), CUDA_SUCCESS);
    EXPECT_EQ(call("cuEventQuery", written), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(call("cuStreamQuery", reader), CUDA_ERROR_NOT_READY);
    gate.open();
    EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", static_cast<void*>(seen.data()), memory,
                   kCount * sizeof(int), reader),
              CUDA_SUCCESS);  // waits, because the target is pageable
    EXPECT_EQ(seen, std::vector<int>(kCount, 5));
    EXPECT_EQ(call("cuEventQuery", written), CUDA_SUCCESS);
    EXPECT_EQ(call("cuEventDestroy_v2", written), CUDA_SUCCESS);
    EXPECT_EQ(call("cuEventQuery", written), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_TRUE(findings().empty());
  });
}

// Waiting on the host is a dependency too: the work that the host waited for precedes the work that
// it issues next.
TEST(Streams, WaitingOfTheHostOrders) {
  for (const std::string way : {"stream", "event", "context", "query"}) {
    cuda_child(json::object(), [way] {
      const CUstream writer = new_stream(), next = new_stream();
      const CUdeviceptr memory = new_memory(kCount * sizeof(int));
      const CUevent written = new_event();
      EXPECT_EQ(launch_fill(memory, kCount, 5, writer), CUDA_SUCCESS);
      EXPECT_EQ(call("cuEventRecord", written, writer), CUDA_SUCCESS);
      if (way == "stream") {
        EXPECT_EQ(synchronize(writer), CUDA_SUCCESS);
      }
      if (way == "event") {
        EXPECT_EQ(call("cuEventSynchronize", written), CUDA_SUCCESS);
      }
      if (way == "context") {
        EXPECT_EQ(call("cuCtxSynchronize"), CUDA_SUCCESS);
      }
      while (way == "query" && call("cuStreamQuery", writer) == CUDA_ERROR_NOT_READY) {
        std::this_thread::yield();
      }
      EXPECT_EQ(launch_add(memory, memory, kCount, next), CUDA_SUCCESS);
      EXPECT_EQ(synchronize(next), CUDA_SUCCESS) << way;
      EXPECT_EQ(ints_at(memory, kCount), std::vector<int>(kCount, 10));
    });
  }
}

TEST(Streams, TheLegacyStreamAndBlockingOnesWaitForEachOther) {
  cuda_child(json::object(), [] {
    const CUstream blocking = new_stream(0);
    const CUdeviceptr memory = new_ints(kCount, 1);
    Gate first, second;
    hold(blocking, &first);
    EXPECT_EQ(launch_fill(memory, kCount, 5, blocking), CUDA_SUCCESS);
    EXPECT_EQ(launch_add(memory, memory, kCount, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamQuery", CUstream{nullptr}), CUDA_ERROR_NOT_READY);
    first.open();
    hold(nullptr, &second);
    EXPECT_EQ(launch_add(memory, memory, kCount, blocking), CUDA_SUCCESS);
    EXPECT_EQ(call("cuStreamQuery", blocking), CUDA_ERROR_NOT_READY);
    second.open();
    EXPECT_EQ(synchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(memory, kCount), std::vector<int>(kCount, 20));
    EXPECT_TRUE(findings().empty());
  });
}

TEST(Streams, NonBlockingOnesDoNot) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream();
    const CUdeviceptr memory = new_ints(kCount, 1);
    Gate gate;
    hold(stream, &gate);
    EXPECT_EQ(launch_fill(memory, kCount, 5, stream), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(memory, kCount),
              std::vector<int>(kCount, 1));  // cuMemcpyDtoH does not wait for `stream`
    gate.open();
    EXPECT_EQ(synchronize(stream), 719);
    EXPECT_TRUE(found("stream race"));
  });
}

TEST(Streams, EachThreadHasADefaultStream) {
  cuda_child(json::object(), [] {
    CUcontext context = nullptr;
    call("cuCtxGetCurrent", &context);
    const auto per_thread = reinterpret_cast<CUstream>(2);
    const CUdeviceptr memory = new_ints(kCount, 1);
    Gate gate;
    hold(per_thread, &gate);
    std::thread([&] {
      call("cuCtxSetCurrent", context);
      EXPECT_EQ(call("cuStreamQuery", per_thread), CUDA_SUCCESS);  // each thread has its own
    }).join();
    EXPECT_EQ(call("cuStreamQuery", per_thread), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(launch_fill(memory, kCount, 5, per_thread), CUDA_SUCCESS);
    gate.open();
    EXPECT_EQ(ints_at(memory, kCount), std::vector<int>(kCount, 5));  // a blocking stream
    EXPECT_TRUE(findings().empty());
  });
}

TEST(Streams, CopiesOfPageableMemoryTakeItAtOnceAndOfPinnedLater) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream();
    const CUdeviceptr memory = new_memory(2 * sizeof(int));
    int pageable = 1;
    int* pinned = nullptr;
    ASSERT_EQ(call("cuMemHostAlloc", reinterpret_cast<void**>(&pinned), sizeof(int), 0u), 0);
    *pinned = 1;
    Gate gate;
    hold(stream, &gate);
    const auto copy = [&](CUdeviceptr to, const int* from) {
      return call("cuMemcpyHtoDAsync_v2", to, static_cast<const void*>(from), sizeof(int), stream);
    };
    EXPECT_EQ(copy(memory, &pageable), CUDA_SUCCESS);
    EXPECT_EQ(copy(memory + sizeof(int), pinned), CUDA_SUCCESS);
    pageable = *pinned = 2;
    gate.open();
    EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(memory, 2), (std::vector<int>{1, 2}));
  });
}

// cuMemcpyHtoD may return before the copy is complete; only its own stream, and streams that this
// one orders, come after the copy.
TEST(Streams, ASynchronousCopyOrdersOnlyBlockingStreams) {
  for (const unsigned flags : {0u, kNonBlocking}) {
    cuda_child(json::object(), [flags] {
      const CUstream stream = new_stream(flags);
      const CUdeviceptr memory = new_memory(kCount * sizeof(int));
      const std::vector<int> values(kCount, 3);
      EXPECT_EQ(call("cuMemcpyHtoD_v2", memory, static_cast<const void*>(values.data()),
                     kCount * sizeof(int)),
                CUDA_SUCCESS);
      launch_add(memory, memory, kCount, stream);
      EXPECT_EQ(synchronize(stream), flags == 0 ? 0 : 719);
    });
  }
}

TEST(Streams, EventsMeasureTime) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream();
    const CUevent from = new_event(), to = new_event();
    float milliseconds = -1;
    EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, to), CUDA_ERROR_INVALID_HANDLE);
    Gate gate;
    call("cuEventRecord", from, stream);
    EXPECT_EQ(call("cuEventSynchronize", from), CUDA_SUCCESS);
    hold(stream, &gate);
    call("cuEventRecord", to, stream);
    EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, to), CUDA_ERROR_NOT_READY);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
    EXPECT_EQ(call("cuEventSynchronize", to), CUDA_SUCCESS);
    EXPECT_EQ(call("cuEventElapsedTime", &milliseconds, from, to), CUDA_SUCCESS);
    EXPECT_GE(milliseconds, 20);
  });
}

TEST(Streams, HostFunctionsMayNotCallTheDriver) {
  cuda_child(json::object(), [] {
    static int result = -1;
    const CUstream stream = new_stream();
    void (*function)(void*) = [](void*) { result = call("cuCtxSynchronize"); };
    EXPECT_EQ(call("cuLaunchHostFunc", stream, function, static_cast<void*>(nullptr)), 0);
    EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(result, 800);
  });
}

TEST(Streams, WhatIsLeftIsDoneBeforeTheProcessEnds) {
  cuda_child(
      json::object(),
      [] {
        static Gate gate;
        const CUstream stream = new_stream();
        hold(stream, &gate);
        launch_fill(new_memory(4), kCount, 5, stream);  // out of bounds
        EXPECT_EQ(call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
        gate.open();
      },
      [] { EXPECT_TRUE(found("out-of-bounds write")); });
}

// Calls exit(), so that the driver's exit code runs. Under AddressSanitizer it calls _exit(), since
// the leak checker would miss the parent's other threads.
void end_child(bool good) {
#if defined(OPDOCK_TEST_ASAN)
  _exit(good ? 0 : 1);
#else
  std::exit(good ? 0 : 1);
#endif
}

// The child gets the real driver's error and does not hang, although the streams' threads do not
// exist in it.
TEST(Streams, AForkedChildCannotUseThem) {
  cuda_child(json::object(), [] {
    const CUstream stream = new_stream();
    launch_fill(new_memory(kCount * sizeof(int)), kCount, 5, stream);
    EXPECT_EXIT(end_child(synchronize(stream) == CUDA_ERROR_NOT_INITIALIZED &&
                          call("cuInit", 0u) == CUDA_ERROR_NOT_INITIALIZED),
                testing::ExitedWithCode(0), "");
    EXPECT_EQ(synchronize(stream), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace softgpu_test
