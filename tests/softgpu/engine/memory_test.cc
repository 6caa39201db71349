// Tests memory faults of kernels: each test plants one, which must be found at its place.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "test_support.h"

namespace softgpu {
namespace {

// The kernel's text begins at line 3 of test.cu.
constexpr char kCopy[] =
    "OPDOCK_KERNEL(128) copy(const float* x, float* y, int n) {\n"
    "  const int i = static_cast<int>(block_index()) * block_threads() + thread_index();\n"
    "  if (i <= n)\n"
    "    y[i] = x[i];\n"
    "}\n";

TEST(Memory, ReadBeyondTheEnd) {
  const Kernel kernel = make_kernel(kCopy, "copy");
  const DeviceArray<float> x(std::vector<float>(100, 1.0f)), y(200);
  const std::string found = finding_of(launch_of(kernel, 4, 32, x.data(), y.data(), 100));
  expect_finding(found,
                 {"out-of-bounds read of 4 bytes", "test.cu:6", "kernel   copy",
                  "block (3, 0, 0), thread (4, 0, 0)",
                  "0 bytes after the end of an allocation of 400 bytes on device 0", "seed 0"});
  EXPECT_EQ(last_fault(), Fault::kAddress);
}

TEST(Memory, WriteBeyondTheEndAndInTheMiddleOfAWord) {
  const Kernel kernel = make_kernel(kCopy, "copy");
  const DeviceArray<float> x(std::vector<float>(200, 1.0f));
  const DeviceArray<uint8_t> y(402);
  const std::string found =
      finding_of(launch_of(kernel, 4, 32, x.data(), reinterpret_cast<float*>(y.data()), 100));
  expect_finding(found, {"out-of-bounds write of 4 bytes", "test.cu:6",
                         "byte 400 of an allocation of 402 bytes", "with 2 bytes after its end"});
}

TEST(Memory, WriteBeforeTheBegin) {
  const Kernel kernel =
      make_kernel("OPDOCK_KERNEL(32) before(int* x) { x[thread_index() - 1] = 1; }\n", "before");
  const DeviceArray<int> x(32);
  expect_finding(finding_of(launch_of(kernel, 1, 32, x.data())),
                 {"out-of-bounds write of 4 bytes", "thread (0, 0, 0)",
                  "4 bytes before an allocation of 128 bytes"});
}

TEST(Memory, NullAndTheHostsMemory) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) read(const int* x, int* y) { y[thread_index()] = x[thread_index()]; }\n",
      "read");
  const DeviceArray<int> y(32);
  const int* const null = nullptr;
  expect_finding(finding_of(launch_of(kernel, 1, 32, null, y.data())),
                 {"out-of-bounds read of 4 bytes", "is next to null"});
  EXPECT_EQ(last_fault(), Fault::kAddress);
  const std::vector<int> host(32, 1);
  expect_finding(finding_of(launch_of(kernel, 1, 32, host.data(), y.data())),
                 {"out-of-bounds read of 4 bytes", "not device memory: the host's"});
}

TEST(Memory, AnotherThreadsLocalMemory) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) local(int* y) {\n"
      "  OPDOCK_SHARED(int*, lent, 1);\n"
      "  int mine[2] = {thread_index(), y[thread_index()]};\n"
      "  if (thread_index() == 0) lent[0] = mine;\n"
      "  block_barrier();\n"
      "  y[thread_index()] = lent[0][y[thread_index()]];\n"
      "  block_barrier();\n"
      "}\n",
      "local");
  const DeviceArray<int> y(std::vector<int>(32, 1));
  expect_finding(finding_of(launch_of(kernel, 1, 32, y.data())),
                 {"out-of-bounds read of 4 bytes", "another thread's local memory", "test.cu:8"});
}

TEST(Memory, UseAfterRelease) {
  const Kernel kernel = make_kernel(kCopy, "copy");
  const DeviceArray<float> y(32);
  float* x = nullptr;
  {
    const DeviceArray<float> gone(std::vector<float>(32, 1.0f));
    x = gone.data();
  }
  expect_finding(finding_of(launch_of(kernel, 1, 32, x, y.data(), 31)),
                 {"out-of-bounds read of 4 bytes", "of a released allocation of 128 bytes"});
  clear_findings();
  std::vector<float> out(32);
  EXPECT_FALSE(copy_from_device({}, out.data(), x, 128));
  EXPECT_EQ(last_fault(), Fault::kAddress);
  ASSERT_EQ(findings().size(), 1u);
  expect_finding(findings()[0], {"out-of-bounds read", "a released allocation of 128 bytes"});
  EXPECT_FALSE(release(x));
}

TEST(Memory, AddressesAreNotUsedAgainSoonAndNoMoreAlignedThanPromised) {
  void* const first = allocate(0, 1000);
  EXPECT_TRUE(release(first));
  void* const second = allocate(0, 1000);
  EXPECT_NE(first, second);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % 512, 256u);
  ASSERT_EQ(live_allocations().size(), 1u);
  EXPECT_EQ(live_allocations()[0].bytes, 1000u);
  EXPECT_TRUE(release(second));
  EXPECT_FALSE(release(second));
  EXPECT_TRUE(live_allocations().empty());
}

TEST(Memory, Misaligned) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) vectors(const float* x, float* y) {\n"
      "  store_vector(y + 4 * thread_index(), load_vector(x + 4 * thread_index()));\n"
      "}\n",
      "vectors");
  const DeviceArray<float> x(std::vector<float>(200, 1.0f)), y(200);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 32, x.data(), y.data())), "");
  expect_finding(finding_of(launch_of(kernel, 1, 32, x.data() + 1, y.data())),
                 {"misaligned read of 16 bytes", "test.cu:4 (opdock/vector.cuh:"});
  EXPECT_EQ(last_fault(), Fault::kMisaligned);
  expect_finding(finding_of(launch_of(kernel, 1, 32, x.data(), y.data() + 2)),
                 {"misaligned write of 16 bytes", "test.cu:4 (opdock/vector.cuh:"});
}

TEST(Memory, Uninitialised) {
  const Kernel kernel = make_kernel(kCopy, "copy");
  const DeviceArray<float> x(200), y(200);
  EXPECT_TRUE(copy_to_device({}, x.data(), std::vector<float>(50, 1.0f).data(), 200));
  EXPECT_EQ(finding_of(launch_of(kernel, 2, 32, x.data(), y.data(), 49)), "");
  expect_finding(finding_of(launch_of(kernel, 2, 32, x.data(), y.data(), 50)),
                 {"read of 4 bytes of uninitialised memory", "test.cu:6", "block (1, 0, 0)",
                  "thread (18, 0, 0)", "byte 200 of an allocation of 800 bytes"});
  EXPECT_EQ(last_fault(), Fault::kOther);
}

TEST(Memory, UninitialisedByteBetweenOthers) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) odd(uint8_t* x) { if (thread_index() != 9) x[thread_index()] = 1; }\n"
      "OPDOCK_KERNEL(32) words(uint32_t* x) { x[thread_index()] += 1; }\n",
      "odd");
  const Kernel words =
      make_kernel("OPDOCK_KERNEL(32) words(uint32_t* x) { x[thread_index()] += 1; }\n", "words");
  const DeviceArray<uint8_t> x(32);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 32, x.data())), "");
  expect_finding(finding_of(launch_of(words, 1, 8, reinterpret_cast<uint32_t*>(x.data()))),
                 {"read of 4 bytes of uninitialised memory", "thread (2, 0, 0)"});
}

// The engine checks a whole vector at once, and still finds a difference within one.
TEST(Memory, UninitialisedWordOfAVector) {
  const Kernel write = make_kernel(
      "OPDOCK_KERNEL(32) write(float* x) {\n"
      "  store_vector(x + 4 * thread_index(), Vector<float>{});\n"
      "}\n",
      "write");
  const Kernel some = make_kernel(
      "OPDOCK_KERNEL(32) some(float* x, int but) {\n"
      "  if (thread_index() != but) x[thread_index()] = 1.0f;\n"
      "}\n",
      "some");
  const Kernel read = make_kernel(
      "OPDOCK_KERNEL(32) read(const float* x, float* y) {\n"
      "  y[thread_index()] = load_vector(x + 4 * thread_index()).at[0];\n"
      "}\n",
      "read");
  for (int word = 0; word < 4; ++word) {
    const DeviceArray<float> x(32), y(8);
    EXPECT_EQ(finding_of(launch_of(some, 1, 32, x.data(), 20 + word)), "");
    expect_finding(finding_of(launch_of(read, 1, 8, x.data(), y.data())),
                   {"read of 16 bytes of uninitialised memory", "thread (5, 0, 0)"});
    EXPECT_EQ(finding_of(launch_of(write, 1, 8, x.data())), "");
    EXPECT_EQ(finding_of(launch_of(read, 1, 8, x.data(), y.data())), "");
  }
}

// A race is also found between threads that write single words and a thread that reads the whole
// vector.
TEST(Memory, RaceForAWordOfAVector) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) race(float* x, float* y, int word) {\n"
      "  if (thread_index() == 0) y[0] = load_vector(x).at[0];\n"
      "  if (thread_index() == 40) x[word] = 2.0f;\n"
      "}\n",
      "race");
  for (int word = 0; word < 5; ++word) {
    const DeviceArray<float> x(std::vector<float>(8, 1.0f)), y(1);
    const std::string finding = finding_of(launch_of(kernel, 1, 64, x.data(), y.data(), word));
    EXPECT_EQ(finding.find("race") != finding.npos, word < 4) << word << ": " << finding;
  }
}

TEST(Memory, OutputNeverWritten) {
  const Kernel kernel = make_kernel(kCopy, "copy");
  const DeviceArray<float> x(std::vector<float>(100, 1.0f)), y(100);
  EXPECT_EQ(finding_of(launch_of(kernel, 4, 32, x.data(), y.data(), 98)), "");
  std::vector<float> out(100);
  clear_findings();
  Operation reading;
  reading.what = "reading y";
  EXPECT_FALSE(copy_from_device(reading, out.data(), y.data(), 400));
  EXPECT_EQ(last_fault(), Fault::kOther);
  ASSERT_EQ(findings().size(), 1u);
  expect_finding(findings()[0], {"uninitialised memory: nobody has written it", "reading y",
                                 "byte 396 of an allocation of 400 bytes"});
  clear_findings();
}

TEST(Memory, SharedBeyondTheEnd) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) shift(float* y) {\n"
      "  OPDOCK_SHARED(float, a, 64);\n"
      "  OPDOCK_SHARED(float, b, 64);\n"
      "  a[thread_index()] = b[thread_index()] = 1;\n"
      "  block_barrier();\n"
      "  y[thread_index()] = a[thread_index() + 1] + b[thread_index()];\n"
      "}\n",
      "shift");
  const DeviceArray<float> y(64);
  expect_finding(finding_of(launch_of(kernel, 1, 64, y.data())),
                 {"out-of-bounds read of 4 bytes", "test.cu:8", "thread (63, 0, 0)",
                  "0 bytes after the end of 256 bytes of shared memory of test.cu:4"});
}

TEST(Memory, DynamicSharedBeyondTheEnd) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) dynamic(float* y) {\n"
      "  dynamic_shared<float>()[thread_index()] = 1;\n"
      "  y[thread_index()] = dynamic_shared<float>()[thread_index()];\n"
      "}\n",
      "dynamic");
  const DeviceArray<float> y(64);
  Launch launch = launch_of(kernel, 1, 64, y.data());
  launch.shared_bytes = 256;
  EXPECT_EQ(finding_of(launch), "");
  launch.shared_bytes = 252;
  expect_finding(finding_of(launch), {"out-of-bounds write of 4 bytes", "thread (63, 0, 0)",
                                      "after the end of 252 bytes of dynamic shared memory"});
  launch.shared_bytes = 0;
  expect_finding(finding_of(launch), {"out-of-bounds write", "of which the launch has none"});
}

TEST(Memory, SharedMisaligned) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) vectors(float* y) {\n"
      "  OPDOCK_SHARED(float, a, 128);\n"
      "  store_vector(a + 4 * thread_index(), Vector<float>{});\n"
      "  y[thread_index()] = a[4 * thread_index()];\n"
      "}\n",
      "vectors");
  const DeviceArray<float> y(32);
  expect_finding(finding_of(launch_of(kernel, 1, 32, y.data())),
                 {"misaligned write of 16 bytes", "test.cu:5"});
}

TEST(Memory, SharedUninitialised) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) forget(float* y) {\n"
      "  OPDOCK_SHARED(float, a, 64);\n"
      "  if (thread_index() != 7) a[thread_index()] = 1;\n"
      "  block_barrier();\n"
      "  y[thread_index()] = a[63 - thread_index()];\n"
      "}\n",
      "forget");
  const DeviceArray<float> y(64);
  expect_finding(finding_of(launch_of(kernel, 1, 64, y.data())),
                 {"read of 4 bytes of uninitialised memory", "test.cu:7", "thread (56, 0, 0)",
                  "byte 28 of 256 bytes of shared memory of test.cu:4"});
}

TEST(Memory, SharedOfEachBlockIsItsOwn) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) first(float* y) {\n"
      "  OPDOCK_SHARED(float, a, 32);\n"
      "  if (block_index() == 0) a[thread_index()] = 1;\n"
      "  if (block_index() == 1) y[thread_index()] = a[thread_index()];\n"
      "}\n",
      "first");
  const DeviceArray<float> y(32);
  expect_finding(finding_of(launch_of(kernel, 2, 32, y.data())),
                 {"read of 4 bytes of uninitialised memory", "block (1, 0, 0)"});
}

TEST(Memory, TooMuchStaticShared) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) large() { OPDOCK_SHARED(float, a, 20000); a[thread_index()] = 1; }\n",
      "large");
  expect_finding(finding_of(launch_of(kernel, 1, 32)), {"static shared memory of 80000 bytes"});
}

TEST(Memory, AnotherDevices) {
  const Kernel kernel = make_kernel(kCopy, "copy");
  const DeviceArray<float> x(std::vector<float>(32, 1.0f), 1), y(32);
  expect_finding(finding_of(launch_of(kernel, 1, 32, x.data(), y.data(), 31)),
                 {"read of 4 bytes in another device's memory", "on device 1"});
  EXPECT_EQ(last_fault(), Fault::kAddress);
}

TEST(Memory, CopiesBeyondTheEnd) {
  const DeviceArray<int> x(10), y(std::vector<int>(10, 1));
  const std::vector<int> host(11);
  clear_findings();
  EXPECT_FALSE(copy_to_device({}, x.data(), host.data(), 44));
  EXPECT_FALSE(copy_on_device({}, x.data() + 1, y.data(), 40));
  EXPECT_FALSE(fill({}, x.data(), 7, 4, 11));
  EXPECT_EQ(findings().size(), 3u);
  clear_findings();
  EXPECT_TRUE(copy_on_device({}, x.data() + 1, y.data(), 36));
  EXPECT_TRUE(fill({}, x.data(), 7, 2, 2));
  EXPECT_EQ(x.get(), (std::vector<int>{0x70007, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace softgpu
