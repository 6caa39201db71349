// Tests on a machine with a GPU that a child forked after probing can use CUDA. Nothing else may
// run in this process.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "facts/machine.h"
#include "support/sanitizer.h"

// AddressSanitizer would otherwise keep the addresses that CUDA reserves for itself.
extern "C" const char* __asan_default_options() {
  return "protect_shadow_gap=0";
}

namespace opdock {
namespace {

template <typename F>
F* find(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

// Initialises CUDA, makes a context, fills device memory and reads it back. Returns 0 if it works,
// otherwise the number of the step that failed.
int use_cuda() {
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (!cuda) return 1;
  void* context = nullptr;
  unsigned long long memory = 0;
  unsigned char back[256] = {};
  if (find<int(unsigned)>(cuda, "cuInit")(0) != 0) return 2;
  if (find<int(void**, int)>(cuda, "cuDevicePrimaryCtxRetain")(&context, 0) != 0) return 3;
  if (find<int(void*)>(cuda, "cuCtxSetCurrent")(context) != 0) return 4;
  if (find<int(unsigned long long*, size_t)>(cuda, "cuMemAlloc_v2")(&memory, sizeof back)) return 5;
  if (find<int(unsigned long long, unsigned char, size_t)>(cuda, "cuMemsetD8_v2")(memory, 42,
                                                                                  sizeof back)) {
    return 6;
  }
  if (find<int(void*, unsigned long long, size_t)>(cuda, "cuMemcpyDtoH_v2")(back, memory,
                                                                            sizeof back)) {
    return 7;
  }
  for (const unsigned char byte : back) {
    if (byte != 42) return 8;
  }
  return 0;
}

TEST(ForkOnGpu, AChildForkedAfterProbingUsesCuda) {
#ifdef OPDOCK_TEST_TSAN
  GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads after a fork";
#endif
  const MachineFacts facts = probe_machine();
  bool cuda = false;
  for (const Gpu& gpu : facts.gpus) cuda = cuda || gpu.backend == Backend::kCuda;
  if (!cuda) GTEST_SKIP() << "no CUDA GPU: " << facts.cuda_problem;
  EXPECT_TRUE(facts.cuda_driver.has_value());
  const pid_t child = fork();
  if (child == 0) _exit(use_cuda());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step of use_cuda that failed";
}

// Runs second: it initialises CUDA in this process and compares the facts with what the driver
// reports.
TEST(ForkOnGpu, TheDriverAgreesWithTheFacts) {
  const MachineFacts facts = probe_machine();
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (!cuda || find<int(unsigned)>(cuda, "cuInit")(0) != 0) {
    GTEST_SKIP() << "no CUDA GPU: " << facts.cuda_problem;
  }
  int version = 0, count = 0;
  find<int(int*)>(cuda, "cuDriverGetVersion")(&version);
  find<int(int*)>(cuda, "cuDeviceGetCount")(&count);
  EXPECT_EQ(facts.cuda_driver->text(),
            std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10));
  if (facts.gpu_order_uncertain) GTEST_SKIP() << "different GPUs in unknown order";
  ASSERT_EQ(static_cast<size_t>(count), facts.gpus.size());
  for (int i = 0; i < count; ++i) {
    int major = 0, minor = 0;
    char name[256] = {};
    const auto attribute = find<int(int*, int, int)>(cuda, "cuDeviceGetAttribute");
    attribute(&major, 75, i);
    attribute(&minor, 76, i);
    find<int(char*, int, int)>(cuda, "cuDeviceGetName")(name, sizeof name, i);
    EXPECT_EQ(facts.gpus[i].major, major);
    EXPECT_EQ(facts.gpus[i].minor, minor);
    EXPECT_EQ(facts.gpus[i].name, name);
  }
}

}  // namespace
}  // namespace opdock
