// Tests operations that access the same memory: streams that do not wait, and launches that begin
// early.
// SPDX-License-Identifier: Apache-2.0
#include "test_support.h"

namespace softgpu {
namespace {

Operation on_stream(uint32_t stream, uint64_t number, Clock before = {}) {
  Operation operation;
  operation.what = "operation " + std::to_string(number) + " of stream " + std::to_string(stream);
  operation.stream = stream;
  operation.number = number;
  operation.before = std::move(before);
  return operation;
}

TEST(Order, ReadOnAStreamThatDoesNotWait) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) add(const int* x, int* y) { y[thread_index()] = x[thread_index()] + 1; "
      "}\n",
      "add");
  const DeviceArray<int> x(std::vector<int>(32, 1)), y(32), z(32), other(32);
  const Launch first = launch_of(kernel, 1, 32, x.data(), y.data());
  const Launch to_z = launch_of(kernel, 1, 32, y.data(), z.data());
  const Launch to_other = launch_of(kernel, 1, 32, y.data(), other.data());
  EXPECT_EQ(finding_of(on_stream(1, 1), first), "");
  // These run on the same stream, or on one that waited.
  EXPECT_EQ(finding_of(on_stream(1, 2), to_z), "");
  EXPECT_EQ(finding_of(on_stream(2, 1, {0, 1}), to_other), "");
  const DeviceArray<int> late(32);
  expect_finding(finding_of(on_stream(3, 1), launch_of(kernel, 1, 32, y.data(), late.data())),
                 {"stream race: read of 4 bytes that an operation of another stream writes",
                  "nothing orders the two", "operation 1 of stream 1",
                  "launch   operation 1 of stream 3", "test.cu:3", "wait for an event"});
  // Stream 2 still reads y.
  expect_finding(finding_of(on_stream(4, 1, {0, 2}), first),
                 {"stream race: write of 4 bytes that an operation of another stream reads",
                  "operation 1 of stream 2", "launch   operation 1 of stream 4"});
  EXPECT_EQ(finding_of(on_stream(4, 2, {0, 2, 1}), first), "");
  std::vector<int> out(32);
  EXPECT_FALSE(copy_from_device(on_stream(5, 1, {0, 2}), out.data(), other.data(), 128));
  ASSERT_EQ(findings().size(), 1u);
  expect_finding(findings()[0], {"stream race: read of what an unordered operation writes",
                                 "by       operation 1 of stream 5", "operation 1 of stream 2"});
  EXPECT_TRUE(copy_from_device(on_stream(5, 2, {0, 2, 1}), out.data(), other.data(), 128));
  EXPECT_EQ(out, std::vector<int>(32, 3));
  clear_findings();
}

TEST(Order, AllocationAndReleaseAreInOrderToo) {
  void* const memory = allocate(on_stream(1, 1), 64);
  clear_findings();
  EXPECT_FALSE(fill(on_stream(2, 1), memory, 0, 1, 64));
  EXPECT_EQ(findings().size(), 1u);
  EXPECT_TRUE(fill(on_stream(2, 2, {0, 1}), memory, 0, 1, 64));
  EXPECT_FALSE(release(on_stream(1, 2), memory));
  EXPECT_EQ(findings().size(), 2u);
  EXPECT_TRUE(release(on_stream(1, 3, {0, 0, 2}), memory));
  EXPECT_FALSE(release(on_stream(1, 4), memory));
  EXPECT_EQ(findings().size(), 2u);
  clear_findings();
}

// A read before any write names the operations that may be about to write.
TEST(Order, ReadOfWhatAnotherStreamHasYetToWrite) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) copy(const int* x, int* y) { y[thread_index()] = x[thread_index()]; }\n",
      "copy");
  const DeviceArray<int> x(32), y(32);
  ask_pending_writes([&](const Operation& reader, uintptr_t address) {
    EXPECT_EQ(reader.number, 7u);
    EXPECT_EQ(address, reinterpret_cast<uintptr_t>(x.data()) & ~uintptr_t{3});
    return std::vector<std::string>{"a fill on stream 9 of cuda:0"};
  });
  configure({.seed = 0, .workers = 1, .counters = false, .steps = kSteps});
  expect_finding(finding_of(on_stream(8, 7), launch_of(kernel, 1, 1, x.data(), y.data())),
                 {"stream race: read of 4 bytes that nobody has written yet",
                  "launch   operation 7 of stream 8", "other    a fill on stream 9 of cuda:0"});
  int out = 0;
  EXPECT_FALSE(copy_from_device(on_stream(8, 7), &out, x.data(), 4));
  expect_finding(findings().at(0), {"stream race: ", "by       operation 7 of stream 8",
                                    "other    a fill on stream 9 of cuda:0"});
  clear_findings();
  ask_pending_writes({});
  expect_finding(finding_of(on_stream(8, 7), launch_of(kernel, 1, 1, x.data(), y.data())),
                 {"read of 4 bytes of uninitialised memory"});
  configure({});
}

// ---- programmatic launches

TEST(Order, AProgrammaticLaunchWaitsForTheOneBefore) {
  const std::vector<Kernel> kernels = make_kernels(
      "#include \"opdock/device.cuh\"\nusing namespace opdock;\n"
      "OPDOCK_KERNEL(64) first(const int* x, int* y) { y[thread_index()] = x[thread_index()]; }\n"
      "OPDOCK_KERNEL(64) next(const int* x, int* y, int* other, int way) {\n"
      "  const int i = thread_index();\n"
      "  if (way == 0) y[i] += 1;\n"
      "  if (way == 1 || (way == 2 && i == 9) || (way == 3 && i == 9)) launch_wait();\n"
      "  if (way == 2) block_barrier();\n"
      "  if (way == 5) other[i] = 2;\n"
      "  if (way != 0 && way != 5) y[i] = x[63 - i];\n"
      "  if (way == 4) launch_wait();\n"
      "  if (way == 1) other[i] = 2;\n"
      "}\n",
      {"first", "next"}, 32);
  ASSERT_EQ(kernels.size(), 2u);
  uint64_t number = 0;
  const auto found = [&](int way, bool early) {
    const DeviceArray<int> before(std::vector<int>(64, 1)), x(64), y(64);
    const Operation filled = on_stream(1, ++number), made = on_stream(1, ++number);
    Operation read = on_stream(1, ++number);
    EXPECT_TRUE(fill(filled, y.data(), 3, 4, 64));
    EXPECT_EQ(finding_of(made, launch_of(kernels[0], 1, 64, before.data(), x.data())), "");
    if (early) read.early = made.number;
    return finding_of(read, launch_of(kernels[1], 1, 64, x.data(), y.data(), before.data(), way));
  };
  const std::string race = "race with the launch before: ";
  EXPECT_EQ(found(0, true), "");  // y was written before the previous launch began
  EXPECT_EQ(found(1, true), "");
  EXPECT_EQ(found(2, true), "");  // one thread waits for all that it meets at a barrier
  expect_finding(found(3, true), {race + "read"});
  expect_finding(found(4, true), {race + "read of 4 bytes that it writes",
                                  "a programmatic launch that has not waited", "test.cu:10",
                                  "call launch_wait()", "test.cu:3"});
  expect_finding(found(5, true), {race + "write of 4 bytes that it reads", "test.cu:9"});
  for (int way = 0; way < 6; ++way) EXPECT_EQ(found(way, false), "") << way;
}

// ---- read-only memory

TEST(Order, MemoryThatIsOnlyToBeReadIsNotWritten) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) change(const int* x, int* y, int which) {\n"
      "  const int i = thread_index();\n"
      "  y[i] = x[i];\n"
      "  if (which == 1 && i == 5) const_cast<int*>(x)[i] = 2;\n"
      "}\n",
      "change");
  const DeviceArray<int> x(std::vector<int>(64, 1)), y(128);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 64, x.data(), y.data(), 0)), "");
  expect_finding(finding_of(launch_of(kernel, 1, 64, x.data(), y.data(), 1)),
                 {"write of 4 bytes in memory that is only to be read", "test.cu:6",
                  "thread (5, 0, 0)", "which is what the kernel has by pointers to const alone"});
  // The kernel gets one allocation both as const and as non-const.
  ASSERT_EQ(finding_of(launch_of(kernel, 1, 64, x.data(), y.data() + 64, 0)), "");
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 64, y.data() + 64, y.data(), 1)), "");
  // The caller declares a part of an allocation read-only.
  Operation operation;
  operation.read_only = {{reinterpret_cast<uintptr_t>(y.data() + 64), 256, "an input of f()"}};
  EXPECT_EQ(finding_of(operation, launch_of(kernel, 1, 64, x.data(), y.data(), 0)), "");
  expect_finding(finding_of(operation, launch_of(kernel, 1, 64, x.data(), y.data() + 1, 0)),
                 {"only to be read", "test.cu:5", "thread (63, 0, 0)", "which is an input of f()"});
  EXPECT_FALSE(fill(operation, y.data() + 60, 0, 4, 8));
  expect_finding(findings().at(0), {"only to be read: an input of f()"});
  clear_findings();
}

}  // namespace
}  // namespace softgpu
