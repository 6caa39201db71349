// Tests the CUDA driver and the call path over it with the stand-in libcuda. Each test runs in its
// own child, because the driver's state belongs to the process.
// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "call/call.h"
#include "call/target.h"
#include "driver/cuda_api.h"
#include "support/soft_child.h"
#include "unit/call/support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;
using nlohmann::json;

constexpr char kTwoGpus[] =
    R"({"cuda": 12090, "gpus": [{"arch": "sm_90", "memory": 1000000},
        {"arch": "sm_80", "memory": 1000000, "attributes": {"16": 108}}]})";

// PTX whose parameters the stand-in reads, so that it can record arguments.
constexpr char kPtx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry scale(.param .u64 x, .param .f32 a) { ret; }\n";

// A kernel for sm_90, where it can wait for the previous launch (programmatic dependent
// launch).
constexpr char kPtxForSm90[] =
    ".version 7.8\n.target sm_90\n.address_size 64\n"
    ".visible .entry scale(.param .u64 x, .param .f32 a) { ret; }\n";

// kPtx with static shared memory.
constexpr char kPtxWithShared[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry scale(.param .u64 x, .param .f32 a)\n"
    "{ .shared .align 4 .b8 tile[40000]; mov.u32 %r, tile; ret; }\n";

using soft_child::recorded;

// Runs `body` in a child with the stand-in set up; the test fails if an expectation fails there.
void in_child(const char* config, const std::function<void(const std::string& record)>& body) {
  char path[] = "/tmp/opdock-record-XXXXXX";
  int file = mkstemp(path);
  ASSERT_GE(file, 0);
  close(file);
  soft_child::run([&] {
    setenv("OPDOCK_SOFTGPU", config, 1);
    setenv("OPDOCK_SOFTGPU_RECORD", path, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    // Loaded under its SONAME, so that opening "libcuda.so.1" finds it.
    EXPECT_NE(dlopen(SOFTGPU_CUDA, RTLD_NOW), nullptr) << dlerror();
    body(path);
  });
  unlink(path);
}

Driver* driver() {
  Driver* found = nullptr;
  const Status opened = cuda_driver(&found);
  EXPECT_TRUE(opened.ok() && found != nullptr) << opened.text;
  return found;
}

// Returns one of libcuda's own functions, for what a program would do.
template <class F>
F cuda_function(const char* name) {
  return reinterpret_cast<F>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}
void* current_context() {
  void* context = nullptr;
  cuda_function<int (*)(void**)>("cuCtxGetCurrent")(&context);
  return context;
}
void* new_stream(int index) {
  void* previous = nullptr;
  void* stream = nullptr;
  EXPECT_TRUE(driver()->enter(index, nullptr, &previous).ok());
  EXPECT_EQ(cuda_function<int (*)(void**, unsigned)>("cuStreamCreate")(&stream, 0), 0);
  driver()->leave(previous);
  return stream;
}

// ---- an op that launches one kernel, with an image table made here

struct Image {
  std::string bytes;
  std::span<const uint8_t> span() const {
    return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
};
Kernels* ptx_kernels(int index, const char* ptx = kPtx) {
  const Image* image = new Image{std::string(ptx, std::strlen(ptx) + 1)};
  static const std::string* names = new std::string("scale<float>\0scale\0", 19);
  ImageRow row{Backend::kCuda, ImageKind::kPtx,
               "compute_80",   Version{11, 0},
               image->span(),  {reinterpret_cast<const uint8_t*>(names->data()), names->size()}};
  static const char* const kernels[] = {"scale<float>", "gone<float>"};
  Kernels* const made = new Kernels(driver(), {OPDOCK_CUDA, index}, row);
  made->number(kernels, 2);
  return made;
}

opdock_status run_scale(const opdock_call* call, const opdock_value* args, uint32_t, opdock_value*,
                        uint32_t) {
  opdock_kernel* kernel = nullptr;
  const int64_t asked = args[1].as.i64;
  const uint32_t number = asked == -10 || asked == -11 ? static_cast<uint32_t>(-9 - asked) : 0;
  opdock_status status = call->host->kernel(call, number, &kernel);
  if (status != OPDOCK_OK) return status;
  const void* x = args[0].as.tensor->data;
  float a = 2;
  void* pointers[] = {&x, &a};
  opdock_launch launch{};
  launch.struct_size = sizeof launch;
  launch.grid[0] = 3;
  launch.block[0] = 128;
  launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;
  launch.args = pointers;
  launch.num_args = 2;
  if (args[1].as.i64 > 0) launch.shared_bytes = static_cast<uint32_t>(args[1].as.i64);
  if (args[1].as.i64 == -1) launch.num_args = 1;
  if (args[1].as.i64 == -2) launch.grid[1] = 0;
  struct Later {  // the struct of a later minor version
    opdock_launch known;
    uint64_t more[4];
  } later{launch, {7, 7, 7, 7}};
  if (args[1].as.i64 == -3) {
    later.known.struct_size = sizeof later;
    return call->host->launch(call, kernel, &later.known);
  }
  if (args[1].as.i64 == -4) launch.struct_size = offsetof(opdock_launch, args);
  if (args[1].as.i64 == -7) launch.struct_size = offsetof(opdock_launch, num_args);
  if (args[1].as.i64 == -5) launch.struct_size = offsetof(opdock_launch, reserved);
  if (args[1].as.i64 == -12) launch.flags = OPDOCK_LAUNCH_PROGRAMMATIC;
  if (args[1].as.i64 == -6) {
    launch.flags = OPDOCK_LAUNCH_COOPERATIVE | OPDOCK_LAUNCH_PROGRAMMATIC;
    launch.cluster[0] = 3;
  }
  return call->host->launch(call, kernel, &launch);
}
opdock_status prepare_scale(const opdock_call* call) {
  opdock_kernel* kernel = nullptr;
  return call->host->kernel(call, 0, &kernel);
}

struct ScaleOp {
  explicit ScaleOp(uint32_t flags = OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_CAPTURE_SAFE)
      : op(make_op("scale(Tensor x, int shared=0) -> ()", flags)) {
    op.run = run_scale;
    op.prepare = prepare_scale;
  }
  opdock_op op;
};

struct GpuCall {
  explicit GpuCall(const ScaleOp& op) : function(&op.op) {
    function.resolver.driver = driver();
    function.resolver.kernels = ptx_kernels(0);
    x = arguments.tensor({4});
    x->device = {OPDOCK_CUDA, 0};
  }
  opdock_status operator()(int64_t shared = 0, void* stream = nullptr) {
    opdock_call_options options{};
    options.struct_size = sizeof options;
    options.stream = stream;
    return function.invoke({A::value(x), A::integer(shared)}, {}, &options);
  }
  Arguments arguments;
  opdock_tensor* x;
  TestFunction function;
};

TEST(CudaDriver, TellsTheFactsOfEachGpuWithoutAContext) {
  in_child(kTwoGpus, [](const std::string& record) {
    const opdock_device_facts* facts = nullptr;
    ASSERT_TRUE(driver()->facts(1, &facts).ok());
    EXPECT_EQ(facts->struct_size, sizeof(opdock_device_facts));
    EXPECT_EQ(facts->type, OPDOCK_CUDA);
    EXPECT_EQ(facts->arch_major, 8u);
    EXPECT_EQ(facts->arch_minor, 0u);
    EXPECT_EQ(facts->warp_size, 32u);
    EXPECT_EQ(facts->multiprocessors, 108u);
    EXPECT_EQ(facts->max_threads_per_block, 1024u);
    EXPECT_EQ(facts->max_shared_bytes, 101376u);
    EXPECT_EQ(facts->memory_bytes, 1000000u);
    EXPECT_TRUE(recorded(record, "context").empty());
  });
}

TEST(CudaDriver, RefusesAGpuThatIsNotThere) {
  in_child(kTwoGpus, [](const std::string&) {
    const opdock_device_facts* facts = nullptr;
    for (int index : {2, 63, 64, -1}) {
      Status done = driver()->facts(index, &facts);
      EXPECT_EQ(done.status, OPDOCK_DEVICE_ERROR) << index;
      EXPECT_NE(done.text.find("cuda:" + std::to_string(index)), std::string::npos) << done.text;
    }
  });
}

TEST(CudaDriver, SaysThatThereIsNoGpu) {
  in_child(R"({"gpus": []})", [](const std::string&) {
    const opdock_device_facts* facts = nullptr;
    Status done = driver()->facts(0, &facts);
    EXPECT_EQ(done.status, OPDOCK_DEVICE_ERROR);
    EXPECT_NE(done.text.find("CUDA_ERROR_NO_DEVICE (100)"), std::string::npos) << done.text;
    EXPECT_NE(done.text.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << done.text;
  });
}

TEST(CudaDriver, NamesTheGpuThatCannotBeAsked) {
  in_child(R"({"gpus": [{"arch": "sm_90"}, {"arch": "sm_90"}],
               "failures": [{"function": "cuDeviceTotalMem_v2", "call": 2, "error": 999}]})",
           [](const std::string&) {
             const opdock_device_facts* facts = nullptr;
             EXPECT_TRUE(driver()->facts(0, &facts).ok());
             const Status done = driver()->facts(1, &facts);
             EXPECT_EQ(done.text.find("cuda:1: cuDeviceTotalMem: CUDA_ERROR_UNKNOWN (999)"), 0u)
                 << done.text;
           });
}

TEST(CudaDriver, EntersThePrimaryContextAndRestoresTheFormerOne) {
  in_child(kTwoGpus, [](const std::string& record) {
    void *first = nullptr, *second = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &first).ok());
    void* zero = current_context();
    ASSERT_NE(zero, nullptr);
    ASSERT_TRUE(driver()->enter(1, nullptr, &second).ok());
    EXPECT_NE(current_context(), zero);
    driver()->leave(second);
    EXPECT_EQ(current_context(), zero);
    void* again = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &again).ok());
    driver()->leave(again);
    EXPECT_EQ(current_context(), zero);
    driver()->leave(first);
    EXPECT_EQ(current_context(), nullptr);
    EXPECT_EQ(recorded(record, "context").size(), 2u);
  });
}

TEST(CudaDriver, EntersTheStreamsContext) {
  in_child(kTwoGpus, [](const std::string&) {
    void* stream = new_stream(1);
    void* previous = nullptr;
    ASSERT_TRUE(driver()->enter(1, nullptr, &previous).ok());
    void* one = current_context();
    driver()->leave(previous);
    ASSERT_TRUE(driver()->enter(0, stream, &previous).ok());
    EXPECT_EQ(current_context(), one);
    driver()->leave(previous);
    EXPECT_EQ(current_context(), nullptr);
  });
}

TEST(CudaDriver, IsOfNoUseInAForkedChild) {
  in_child(kTwoGpus, [](const std::string&) {
    const opdock_device_facts* facts = nullptr;
    ASSERT_TRUE(driver()->facts(0, &facts).ok());
    pid_t child = fork();
    if (child == 0) {
      void* previous = nullptr;
      Status done = driver()->enter(0, nullptr, &previous);
      bool good = done.status == OPDOCK_DEVICE_ERROR &&
                  done.text.find("before this process was forked") != std::string::npos;
      _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
}

TEST(CudaDriver, StaysUsableInAChildThatWasForkedBeforeIt) {
  in_child(kTwoGpus, [](const std::string&) {
    driver();  // opened, not initialised
    pid_t child = fork();
    if (child == 0) {
      const opdock_device_facts* facts = nullptr;
      _exit(driver()->facts(0, &facts).ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
}

TEST(CudaDriver, AllocatesInStreamOrderAndGivesBack) {
  in_child(kTwoGpus, [](const std::string& record) {
    void *previous = nullptr, *memory = nullptr;
    ASSERT_TRUE(driver()->enter(1, nullptr, &previous).ok());
    ASSERT_TRUE(driver()->allocate(1, nullptr, 1000, &memory).ok());
    driver()->leave(previous);
    ASSERT_TRUE(driver()->release(1, nullptr, memory).ok());
    EXPECT_EQ(recorded(record, "allocate").at(0).at("device"), 1);
    EXPECT_EQ(recorded(record, "free").at(0).at("bytes"), 1000);
    ASSERT_TRUE(driver()->enter(0, nullptr, &previous).ok());
    Status done = driver()->allocate(0, nullptr, 2000000, &memory);
    EXPECT_EQ(done.status, OPDOCK_OUT_OF_MEMORY);
    EXPECT_NE(done.text.find("CUDA_ERROR_OUT_OF_MEMORY (2)"), std::string::npos) << done.text;
  });
}

TEST(CudaDriver, OutputsAreAlignedAsPlanned) {
  in_child(kTwoGpus, [](const std::string& record) {
    void* previous = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &previous).ok());
    Target target;
    target.driver = driver();
    target.device = {OPDOCK_CUDA, 0};
    opdock_output layout{};
    layout.dtype = kF32;
    layout.ndim = 1;
    layout.shape[0] = 100;
    for (const uint64_t alignment : {0, 256, 65536}) {
      layout.alignment = alignment;
      // The second allocation begins where the first one ended, so that its alignment is no
      // accident.
      opdock_tensor* out[2] = {};
      for (opdock_tensor*& each : out) {
        const Status done = allocate_output(target, nullptr, layout, &each);
        ASSERT_TRUE(done.ok()) << done.text;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(each->data) % std::max<uint64_t>(alignment, 256), 0u);
      }
      for (opdock_tensor* each : out) free_output(each);
    }
    EXPECT_EQ(recorded(record, "free").size(), 6u);
    EXPECT_EQ(recorded(record, "free").at(0).at("bytes"), 400);
  });
}

TEST(CudaDriver, AllocatesWithoutPoolsWhereThereAreNone) {
  in_child(R"({"gpus": [{"arch": "sm_60", "memory": 100000, "attributes": {"115": 0}}],
               "failures": [{"function": "cuMemAllocAsync", "error": 801}]})",
           [](const std::string& record) {
             void *previous = nullptr, *memory = nullptr;
             ASSERT_TRUE(driver()->enter(0, nullptr, &previous).ok());
             Status done = driver()->allocate(0, nullptr, 1000, &memory);
             ASSERT_TRUE(done.ok()) << done.text;
             driver()->leave(previous);
             EXPECT_TRUE(driver()->release(0, nullptr, memory).ok());
             EXPECT_EQ(recorded(record, "free").size(), 1u);
           });
}

TEST(CudaDriver, FindsFurtherSymbols) {
  in_child(kTwoGpus, [](const std::string&) {
    EXPECT_EQ(driver()->symbol("cuMemAlloc"),
              dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2"));
    EXPECT_EQ(driver()->symbol("cuNoSuchThing"), nullptr);
    EXPECT_EQ(host_table()->driver_symbol(OPDOCK_CUDA, "cuMemFree"), driver()->symbol("cuMemFree"));
  });
}

TEST(CudaDriver, ReportsEveryStatusWithTheDriversName) {
  in_child(kTwoGpus, [](const std::string&) {
    const cuda::Api* api = nullptr;
    cuda::open_api(&api);
    ASSERT_NE(api, nullptr);
    const struct {
      int result;
      opdock_status status;
      const char* text;
    } rows[] = {
        {1, OPDOCK_DEVICE_ERROR, "CUDA_ERROR_INVALID_VALUE (1)"},
        {2, OPDOCK_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY (2)"},
        {3, OPDOCK_DEVICE_ERROR, "fork"},
        {209, OPDOCK_INCOMPATIBLE, "CUDA_ERROR_NO_BINARY_FOR_GPU (209)"},
        {222, OPDOCK_INCOMPATIBLE, "toolkit"},
        {500, OPDOCK_NOT_FOUND, "CUDA_ERROR_NOT_FOUND (500)"},
        {700, OPDOCK_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
        {719, OPDOCK_DEVICE_LOST, "end this process"},
        {701, OPDOCK_UNSUPPORTED, "fewer threads"},
        {900, OPDOCK_DEVICE_ERROR, "captured"},
        {12345, OPDOCK_DEVICE_ERROR, "unknown error (12345)"},
    };
    for (const auto& row : rows) {
      Status done = cuda::status_of(*api, row.result, "cuTest");
      EXPECT_EQ(done.status, row.status) << done.text;
      EXPECT_EQ(done.text.find("cuTest: "), 0u) << done.text;
      EXPECT_NE(done.text.find(row.text), std::string::npos) << done.text;
    }
  });
}

TEST(Driver, HasNoneForTheCpu) {
  for (const Backend backend : {Backend::kCpu, static_cast<Backend>(7)}) {
    Driver* found = nullptr;
    EXPECT_EQ(driver_for(backend, &found).status, OPDOCK_INCOMPATIBLE);
    EXPECT_EQ(found, nullptr);
  }
}

// ---------------------------------------------------------------------------- calls on the GPU

TEST(GpuCall, LaunchesWithArgumentsOnTheCallersStream) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    void* stream = new_stream(0);
    ASSERT_EQ(call(0, stream), OPDOCK_OK) << call.function.error;
    ASSERT_EQ(call(0, nullptr), OPDOCK_OK) << call.function.error;
    std::vector<json> launches = recorded(record, "launch");
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches[0].at("function"), "scale");
    EXPECT_EQ(launches[0].at("device"), 0);
    EXPECT_EQ(launches[0].at("grid"), json({3, 1, 1}));
    EXPECT_EQ(launches[0].at("block"), json({128, 1, 1}));
    char text[32];
    std::snprintf(text, sizeof text, "%p", stream);
    EXPECT_EQ(launches[0].at("stream"), text);
    EXPECT_EQ(launches[0].at("args").at(1), "00000040");  // 2.0f
    EXPECT_EQ(recorded(record, "load").size(), 1u);       // once for both calls
    EXPECT_EQ(current_context(), nullptr);
  });
}

TEST(GpuCall, RunsOnTheTensorsDeviceNotTheCurrentOne) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    call.function.resolver.kernels = ptx_kernels(1);
    call.x->device.index = 1;
    void* previous = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &previous).ok());
    void* zero = current_context();
    ASSERT_EQ(call(), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(current_context(), zero);
    EXPECT_EQ(recorded(record, "launch").at(0).at("device"), 1);
  });
}

TEST(GpuCall, RunsWhatWasPlannedOnTheTensorsDevice) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    call.function.resolver.kernels = ptx_kernels(1);
    call.x->device.index = 1;
    void* previous = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &previous).ok());
    void* zero = current_context();
    const std::vector<opdock_value> args = {A::value(call.x), A::integer(0)};
    opdock_plan plan{};
    plan.struct_size = sizeof plan;
    char error[512] = "";
    ASSERT_EQ(call.function.plan(args, &plan), OPDOCK_OK) << call.function.error;
    ASSERT_EQ(run_planned(call.function.function, nullptr, &plan, args.data(), 2, nullptr, 0,
                          {error, sizeof error}),
              OPDOCK_OK)
        << error;
    EXPECT_EQ(current_context(), zero);
    EXPECT_EQ(recorded(record, "launch").at(0).at("device"), 1);
  });
}

// The stream's context is asked for, whichever context is current.
TEST(GpuCall, AsksForTheStreamsContext) {
  constexpr char kFailing[] = R"({"cuda": 12090, "gpus": [{"arch": "sm_90", "memory": 1000000}],
      "failures": [{"function": "cuStreamGetCtx", "error": 999}]})";
  in_child(kFailing, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    void* stream = new_stream(0);
    void* previous = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &previous).ok());
    void* primary = current_context();
    EXPECT_EQ(call(0, stream), OPDOCK_DEVICE_ERROR);  // also in the primary context
    EXPECT_NE(std::string(call.function.error).find("cuStreamGetCtx"), std::string::npos)
        << call.function.error;
    EXPECT_EQ(call(0, nullptr), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(current_context(), primary);
    EXPECT_EQ(recorded(record, "launch").size(), 1u);
  });
}

TEST(GpuCall, RaisesTheLimitOfSharedMemory) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    ASSERT_EQ(call(60000), OPDOCK_OK) << call.function.error;
    ASSERT_EQ(call(90000), OPDOCK_OK) << call.function.error;
    ASSERT_EQ(call(60000), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(call(200000), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(call.function.error).find("wanted at most 101376"), std::string::npos)
        << call.function.error;
    EXPECT_EQ(recorded(record, "launch").size(), 3u);
  });
}

// Static and dynamic shared memory count together; below the default limit nothing has to be
// raised.
TEST(GpuCall, RaisesTheLimitBesideAKernelsOwnSharedMemory) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    call.function.resolver.kernels = ptx_kernels(0, kPtxWithShared);
    constexpr int64_t kOwn = 40000;
    for (const int64_t dynamic : {int64_t{49152} - kOwn, int64_t{49152} - kOwn + 1, int64_t{16384},
                                  int64_t{101376} - kOwn, int64_t{1024}}) {
      EXPECT_EQ(call(dynamic), OPDOCK_OK) << dynamic << ": " << call.function.error;
    }
    EXPECT_EQ(recorded(record, "launch").size(), 5u);
    EXPECT_EQ(call(101376 - kOwn + 1), OPDOCK_UNSUPPORTED);
    EXPECT_STREQ(call.function.error,
                 "scale: launch(): found 61377 bytes of dynamic shared memory, wanted at most "
                 "61376 on this GPU, as the kernel has 40000 of its own; launch with less");
    EXPECT_EQ(recorded(record, "launch").size(), 5u);
  });
}

// The limit of a kernel in a module, for a driver without libraries.
TEST(GpuCall, RaisesTheLimitBesideAKernelsOwnSharedMemoryInAModule) {
  in_child(R"({"cuda": 11040, "gpus": [{"arch": "sm_80", "memory": 1000000}]})",
           [](const std::string& record) {
             static const ScaleOp op;
             GpuCall call(op);
             call.function.resolver.kernels = ptx_kernels(0, kPtxWithShared);
             EXPECT_EQ(call(16384), OPDOCK_OK) << call.function.error;
             EXPECT_EQ(recorded(record, "launch").size(), 1u);
           });
}

// A plan over shapes has not seen the data's addresses; on a GPU, a misaligned access loses the
// device.
opdock_status plan_aligned(const opdock_call* call, const opdock_value* args, uint32_t,
                           opdock_plan*) {
  const opdock_value& x = args[0];
  const bool seen = (x.flags & OPDOCK_VALUE_NO_DATA) == 0;
  if (!seen || reinterpret_cast<uintptr_t>(x.as.tensor->data) % 16 == 0) return OPDOCK_OK;
  return call->host->set_error(call, OPDOCK_UNSUPPORTED, "argument 'x': misaligned");
}
TEST(GpuCall, LooksAtTheDataOfWhatWasPlannedOverShapes) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op = [] {
      ScaleOp o;
      o.op.plan = plan_aligned;
      return o;
    }();
    GpuCall call(op);
    opdock_tensor odd = *call.x;
    odd.data = static_cast<char*>(odd.data) + 4;
    opdock_plan plan{};
    plan.struct_size = sizeof plan;
    ASSERT_EQ(call.function.plan({A::value(&odd, OPDOCK_VALUE_NO_DATA), A::integer(0)}, &plan),
              OPDOCK_OK)
        << call.function.error;
    const auto run = [&](const opdock_tensor* x) {
      const opdock_value args[] = {A::value(x), A::integer(0)};
      return run_planned(call.function.function, nullptr, &plan, args, 2, nullptr, 0,
                         {call.function.error, sizeof call.function.error});
    };
    EXPECT_EQ(run(&odd), OPDOCK_UNSUPPORTED);
    EXPECT_STREQ(call.function.error, "scale: argument 'x': misaligned");
    EXPECT_TRUE(recorded(record, "launch").empty());
    EXPECT_EQ(run(call.x), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(recorded(record, "launch").size(), 1u);
  });
}

TEST(GpuCall, RefusesALaunchThatCannotBeRight) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    EXPECT_EQ(call(-1), OPDOCK_INTERNAL);
    EXPECT_NE(std::string(call.function.error)
                  .find("found 1 argument, wanted the kernel's 2; rebuild the plugin"),
              std::string::npos)
        << call.function.error;
    EXPECT_EQ(call(-2), OPDOCK_INTERNAL);
    EXPECT_NE(std::string(call.function.error).find("size of 0"), std::string::npos);
    EXPECT_TRUE(recorded(record, "launch").empty());
  });
}

TEST(GpuCall, SaysWhatToDoAboutAKernelThatIsNotThere) {
  in_child(kTwoGpus, [](const std::string&) {
    static const ScaleOp op;
    GpuCall call(op);
    // number 1: plugin.toml lists it, but the image lacks it
    EXPECT_EQ(call(-10), OPDOCK_NOT_FOUND);
    const std::string lacking = call.function.error;
    EXPECT_NE(lacking.find("found no kernel \"gone<float>\" in the compute_80 ptx"), lacking.npos)
        << lacking;
    EXPECT_TRUE(lacking.ends_with("; build the plugin again")) << lacking;
    EXPECT_EQ(call(-11), OPDOCK_NOT_FOUND);  // number 2
    const std::string unknown = call.function.error;
    EXPECT_NE(unknown.find("found no kernel number 2"), unknown.npos) << unknown;
    EXPECT_TRUE(unknown.ends_with("; list it under `kernels` in plugin.toml")) << unknown;
  });
}

TEST(GpuCall, ReadsLaunchesOfOtherVersions) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    EXPECT_EQ(call(-3), OPDOCK_OK) << call.function.error;  // a longer struct
    EXPECT_EQ(call(-5), OPDOCK_OK) << call.function.error;  // a shorter struct
    for (const int64_t too_short : {-4, -7}) {
      EXPECT_EQ(call(too_short), OPDOCK_INTERNAL);
      EXPECT_NE(std::string(call.function.error).find("ends before num_args"), std::string::npos);
    }
    EXPECT_EQ(recorded(record, "launch").size(), 2u);
  });
}

TEST(GpuCall, PassesOnTheAttributesOfALaunch) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    call.function.resolver.kernels = ptx_kernels(0, kPtxForSm90);
    ASSERT_EQ(call(-6), OPDOCK_OK) << call.function.error;
    json attributes = recorded(record, "launch").at(0).at("attributes");
    EXPECT_EQ(attributes.at("cooperative"), true);
    EXPECT_EQ(attributes.at("programmatic"), true);
    EXPECT_EQ(attributes.at("cluster"), json({3, 1, 1}));
  });
}

// Without the attribute the launch begins after the previous one, which is also correct.
TEST(GpuCall, LeavesOutAnAttributeThatTheCodeOrTheDriverIsTooOldFor) {
  const auto expect_left_out = [](const char* gpus, const char* ptx) {
    in_child(gpus, [=](const std::string& record) {
      static const ScaleOp op;
      GpuCall call(op);
      call.function.resolver.kernels = ptx_kernels(0, ptx);
      ASSERT_EQ(call(-6), OPDOCK_OK) << call.function.error;
      json attributes = recorded(record, "launch").at(0).at("attributes");
      EXPECT_EQ(attributes.at("cooperative"), true);
      EXPECT_FALSE(attributes.contains("programmatic"));
      ASSERT_EQ(call(-12), OPDOCK_OK) << call.function.error;  // without other attributes
      EXPECT_EQ(recorded(record, "launch").at(1).value("attributes", json::object()),
                json::object());
    });
  };
  expect_left_out(kTwoGpus, kPtx);
  expect_left_out(R"({"cuda": 12020, "gpus": [{"arch": "sm_90"}]})", kPtxForSm90);
}

TEST(GpuCall, SaysWhenTheDeviceIsLost) {
  in_child(R"({"gpus": [{"arch": "sm_90", "memory": 1000000}], "failures":
               [{"function": "cuLaunchKernel", "call": 2, "error": 700, "sticky": true}]})",
           [](const std::string&) {
             static const ScaleOp op;
             GpuCall call(op);
             ASSERT_EQ(call(), OPDOCK_OK) << call.function.error;
             for (int i = 0; i < 2; ++i) {
               EXPECT_EQ(call(), OPDOCK_DEVICE_LOST);
               EXPECT_NE(std::string(call.function.error).find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
                         std::string::npos)
                   << call.function.error;
             }
           });
}

TEST(GpuCall, ReportsAFailedLoadAndMayTryAgain) {
  in_child(R"({"gpus": [{"arch": "sm_90", "memory": 1000000}], "failures":
               [{"function": "cuLibraryLoadData", "call": 1, "error": 2}]})",
           [](const std::string&) {
             static const ScaleOp op;
             GpuCall call(op);
             EXPECT_EQ(call(), OPDOCK_OUT_OF_MEMORY);
             EXPECT_NE(
                 std::string(call.function.error).find("loading the compute_80 ptx on cuda:0"),
                 std::string::npos)
                 << call.function.error;
             EXPECT_EQ(call(), OPDOCK_OK) << call.function.error;
           });
}

TEST(GpuCall, MayBeCapturedOncePrepared) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    void* stream = new_stream(0);
    auto begin = cuda_function<int (*)(void*, int)>("cuStreamBeginCapture_v2");
    auto end = cuda_function<int (*)(void*, void**)>("cuStreamEndCapture");
    void* graph = nullptr;
    ASSERT_EQ(begin(stream, 0), 0);
    EXPECT_EQ(call(0, stream), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(call.function.error).find("opdock_prepare, before the capture"),
              std::string::npos)
        << call.function.error;
    ASSERT_EQ(end(stream, &graph), 0);
    char error[512] = "";
    ASSERT_EQ(prepare(call.function.function, {OPDOCK_CUDA, 0}, {error, sizeof error}), OPDOCK_OK)
        << error;
    ASSERT_EQ(begin(stream, 0), 0);
    EXPECT_EQ(call(0, stream), OPDOCK_OK) << call.function.error;
    ASSERT_EQ(end(stream, &graph), 0);
    EXPECT_EQ(recorded(record, "launch").size(), 1u);
  });
}

TEST(GpuCall, IsRefusedInACaptureIfNotCaptureSafe) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op(OPDOCK_OP_THREAD_SAFE);
    GpuCall call(op);
    void* stream = new_stream(0);
    ASSERT_EQ(call(0, stream), OPDOCK_OK) << call.function.error;
    ASSERT_EQ(cuda_function<int (*)(void*, int)>("cuStreamBeginCapture_v2")(stream, 0), 0);
    EXPECT_EQ(call(0, stream), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(call.function.error).find("capture-safe"), std::string::npos);
    EXPECT_EQ(recorded(record, "launch").size(), 1u);
  });
}

opdock_status plan_workspace(const opdock_call*, const opdock_value*, uint32_t, opdock_plan* plan) {
  plan->workspace_bytes = 5000;
  return OPDOCK_OK;
}
opdock_status run_workspace(const opdock_call* call, const opdock_value*, uint32_t, opdock_value*,
                            uint32_t) {
  void* more = nullptr;
  opdock_status status = call->host->workspace(call, 700, 0, &more);
  if (status != OPDOCK_OK) return status;
  bool good = call->workspace != nullptr && call->workspace_bytes == 5000 && more != nullptr;
  return good ? OPDOCK_OK : OPDOCK_INTERNAL;
}

TEST(GpuCall, GivesDeviceWorkspaceAndTakesItBack) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const opdock_op op = make_op("w(Tensor x) -> ()", plan_workspace, run_workspace, nullptr,
                                        OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_MAY_ALLOCATE);
    TestFunction f(&op);
    f.resolver.driver = driver();
    A a;
    opdock_tensor* x = a.tensor({4});
    x->device = {OPDOCK_CUDA, 1};
    ASSERT_EQ(f.invoke({A::value(x)}), OPDOCK_OK) << f.error;
    std::vector<json> made = recorded(record, "allocate");
    ASSERT_EQ(made.size(), 2u);
    EXPECT_EQ(made[0].at("bytes"), 5000);
    EXPECT_EQ(made[1].at("bytes"), 700);
    EXPECT_EQ(made[0].at("device"), 1);
    EXPECT_EQ(recorded(record, "free").size(), 2u);
  });
}

TEST(GpuCall, LoadsOnceForManyThreads) {
  in_child(kTwoGpus, [](const std::string& record) {
    static const ScaleOp op;
    GpuCall call(op);
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        opdock_value args[] = {A::value(call.x), A::integer(0)};
        for (int i = 0; i < 50; ++i) {
          char error[256];
          if (invoke(call.function.function, nullptr, args, 2, nullptr, 0, {error, sizeof error}) !=
              OPDOCK_OK) {
            ++failed;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed, 0);
    EXPECT_EQ(recorded(record, "load").size(), 1u);
    EXPECT_EQ(recorded(record, "launch").size(), 400u);
    EXPECT_EQ(recorded(record, "context").size(), 1u);
  });
}

}  // namespace
}  // namespace opdock
