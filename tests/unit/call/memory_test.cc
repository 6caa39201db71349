// Tests that the host reports an error to a plugin when there is no memory, and never throws an
// exception, which would unwind the plugin's frames.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

#include "call/parallel.h"
#include "opdock/compile.h"
#include "support.h"

namespace {

thread_local bool is_used_up = false;

struct NoMemory {  // allocations of this thread fail while one lives
  NoMemory() { is_used_up = true; }
  ~NoMemory() { is_used_up = false; }
};

}  // namespace

// Not inlined: g++ would otherwise report that malloc or free and the operators do not match.
[[gnu::noinline]] void* operator new(size_t size) {
  void* memory = is_used_up ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace opdock {
namespace {

using namespace testing_support;

// A request that an op makes to the host, and its result.
struct Asked {
  opdock_status (*ask)(const opdock_call* call);
  bool came_back = false;
  opdock_status status = OPDOCK_OK;
};
Asked* asked = nullptr;

opdock_status run_asking(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                         uint32_t) {
  const NoMemory here;
  asked->status = asked->ask(call);
  asked->came_back = true;
  return asked->status;
}

const opdock_op* asking_op() {
  static const opdock_op op = make_op("asking(Tensor x) -> ()", plan_nothing, run_asking, nullptr,
                                      OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_MAY_ALLOCATE);
  return &op;
}

class HostWithoutMemory : public ::testing::TestWithParam<Asked> {};

TEST_P(HostWithoutMemory, AnswersAndTheCallFails) {
  Asked mine = GetParam();
  asked = &mine;
  Arguments arguments;
  TestFunction function(asking_op());
  const opdock_status status = function.invoke({Arguments::value(arguments.tensor({2}))});
  EXPECT_TRUE(mine.came_back) << "an exception went through the op";
  EXPECT_EQ(mine.status, OPDOCK_OUT_OF_MEMORY);
  EXPECT_EQ(status, OPDOCK_OUT_OF_MEMORY);
  EXPECT_STREQ(function.error, "asking: no host memory is left; free some and try again");
}

INSTANTIATE_TEST_SUITE_P(Of, HostWithoutMemory,
                         ::testing::Values(Asked{[](const opdock_call* call) {
                                             void* memory = nullptr;
                                             return call->host->workspace(call, 8, 0, &memory);
                                           }},
                                           Asked{[](const opdock_call* call) {
                                             opdock_kernel* kernel = nullptr;
                                             return call->host->kernel(call, 0, &kernel);
                                           }},
                                           Asked{[](const opdock_call* call) {
                                             return call->host->launch(call, nullptr, nullptr);
                                           }}));

TEST(HostWithoutMemoryToo, FindsNoDriverSymbol) {
  const NoMemory here;
  EXPECT_EQ(host_table()->driver_symbol(OPDOCK_ROCM, "hipInit"), nullptr);
}

// A program's call to the library: it returns a status and never throws.
struct Function {
  const char* name;
  opdock_status (*call)(opdock_runtime* runtime, char* error, uint32_t size);
};

class ProgramWithoutMemory : public ::testing::TestWithParam<Function> {};

TEST_P(ProgramWithoutMemory, IsReported) {
  opdock_runtime* runtime = nullptr;
  ASSERT_EQ(opdock_runtime_create(nullptr, &runtime, nullptr, 0), OPDOCK_OK);
  char error[256] = "";
  opdock_status status = OPDOCK_OK;
  {
    const NoMemory here;
    status = GetParam().call(runtime, error, sizeof error);
  }
  EXPECT_EQ(status, OPDOCK_OUT_OF_MEMORY);
  EXPECT_STREQ(error, "no host memory is left; free some and try again");
  opdock_runtime_destroy(runtime);
}

char* report = nullptr;
constexpr Function kFunctions[] = {
    {"create",
     [](opdock_runtime*, char* error, uint32_t size) {
       opdock_runtime* made = nullptr;
       return opdock_runtime_create(nullptr, &made, error, size);
     }},
    {"get_function",
     [](opdock_runtime* runtime, char* error, uint32_t size) {
       opdock_function* function = nullptr;
       return opdock_get_function(runtime, "an_op_with_a_long_name", &function, error, size);
     }},
    {"list", [](opdock_runtime* runtime, char* error,
                uint32_t size) { return opdock_list_json(runtime, 0, &report, error, size); }},
    {"inspect",
     [](opdock_runtime* runtime, char* error, uint32_t size) {
       return opdock_inspect_json(runtime, "/a/file/that/is/not/there", &report, error, size);
     }},
    {"explain",
     [](opdock_runtime* runtime, char* error, uint32_t size) {
       return opdock_explain_json(runtime, "an_op_with_a_long_name", &report, error, size);
     }},
    {"codes", [](opdock_runtime*, char* error,
                 uint32_t size) { return opdock_codes_json(&report, error, size); }},
    {"cache",
     [](opdock_runtime*, char* error, uint32_t size) {
       return opdock_cache_json("no action of the cache", nullptr, &report, error, size);
     }},
    {"trust",
     [](opdock_runtime*, char* error, uint32_t size) {
       return opdock_trust_json("no action of the list", nullptr, &report, error, size);
     }},
    {"install",
     [](opdock_runtime*, char* error, uint32_t size) {
       return opdock_install_json(nullptr, nullptr, nullptr, &report, error, size);
     }},
    {"uninstall",
     [](opdock_runtime*, char* error, uint32_t size) {
       return opdock_uninstall_json(nullptr, nullptr, &report, error, size);
     }},
    {"build",
     [](opdock_runtime* runtime, char* error, uint32_t size) {
       return opdock_build_json(runtime, "/a/folder/not/there", nullptr, &report, error, size);
     }},
    {"compile",
     [](opdock_runtime* runtime, char* error, uint32_t size) {
       opdock_module* module = nullptr;
       return opdock_compile(runtime, nullptr, &module, error, size);
     }},
};

INSTANTIATE_TEST_SUITE_P(Of, ProgramWithoutMemory, ::testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

// Tests the first use, which creates the pool, and a later use, which finds the pool.
TEST(HostWithoutMemoryToo, RunsAParallelLoopAlone) {
  for (const bool is_first : {true, false}) {
    int seen[100] = {};
    {
      const NoMemory here;
      parallel_for(
          4, 100, 1,
          [](void* context, uint64_t begin, uint64_t end) {
            for (uint64_t i = begin; i < end; ++i) ++static_cast<int*>(context)[i];
          },
          seen);
    }
    EXPECT_EQ(std::count(seen, seen + 100, 1), 100) << is_first;
    parallel_for(4, 100, 1, [](void*, uint64_t, uint64_t) {}, nullptr);
  }
}

}  // namespace
}  // namespace opdock
