// The HIP driver and the call path over it, against libraries that stand for HIP 5 and 7. A library
// is opened once a process, so each test works in a child of its own.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "driver/driver.h"
#include "driver/hip_api.h"
#include "driver/hip_library.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

constexpr char kHip5[] = FAKE_HIP_FOLDER "/libamdhip64.so.5";
constexpr char kHip7[] = FAKE_HIP_FOLDER "/libamdhip64.so.7";

void in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child's failures are above";
}

void* library = nullptr;  // the stand-in
template <class T>
T* of_fake(const char* name) {
  return static_cast<T*>(dlsym(library, name));
}
// What was called since the last time, by name.
std::string calls() {
  char* text = of_fake<char>("fake_hip_calls");
  const std::string found = text;
  text[0] = '\0';
  return found;
}
void fail(const char* function, int error) {
  *of_fake<const char*>("fake_hip_failing") = function;
  *of_fake<int>("fake_hip_error") = error;
}
int current_device() {
  int device = -1;
  reinterpret_cast<int (*)(int*)>(dlsym(library, "hipGetDevice"))(&device);
  return device;
}

Driver* driver() {
  std::string problem;
  Driver* found = driver_for(Backend::kRocm, &problem);
  EXPECT_NE(found, nullptr) << problem;
  return found;
}

// As if a framework had brought the library into the process.
void with(const char* path, const std::function<void()>& body) {
  in_child([&] {
    library = dlopen(path, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    body();
  });
}

class HipVersions : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Both, HipVersions, testing::Values(kHip5, kHip7),
                         [](const auto& one) { return one.index == 0 ? "Hip5" : "Hip7"; });

TEST_P(HipVersions, TellsTheFactsOfEachGpu) {
  with(GetParam(), [] {
    const opdock_device_facts* facts = nullptr;
    std::string arch;
    ASSERT_TRUE(driver()->facts(0, &facts).ok());
    ASSERT_TRUE(driver()->arch(0, &arch).ok());
    EXPECT_EQ(arch, "gfx90a:sramecc+:xnack-");
    EXPECT_EQ(facts->struct_size, sizeof(opdock_device_facts));
    EXPECT_EQ(facts->type, OPDOCK_ROCM);
    EXPECT_EQ(facts->arch_major, 9u);
    EXPECT_EQ(facts->arch_minor, 0u);
    EXPECT_EQ(facts->warp_size, 64u);
    EXPECT_EQ(facts->multiprocessors, 104u);
    EXPECT_EQ(facts->max_threads_per_block, 1024u);
    EXPECT_EQ(facts->max_shared_bytes, 65536u);
    EXPECT_EQ(facts->l2_bytes, 8u << 20);
    EXPECT_EQ(facts->memory_bytes, uint64_t{64} << 30);
    ASSERT_TRUE(driver()->facts(1, &facts).ok());
    ASSERT_TRUE(driver()->arch(1, &arch).ok());
    EXPECT_EQ(arch, "gfx1030");
    EXPECT_EQ(facts->arch_major, 10u);
    EXPECT_EQ(facts->arch_minor, 3u);
    EXPECT_EQ(facts->warp_size, 32u);
  });
}

TEST_P(HipVersions, RefusesAGpuThatIsNotThere) {
  with(GetParam(), [] {
    const opdock_device_facts* facts = nullptr;
    for (int index : {2, 63, 64, -1}) {
      const DriverStatus done = driver()->facts(index, &facts);
      EXPECT_EQ(done.status, OPDOCK_DEVICE_ERROR) << index;
      EXPECT_NE(done.text.find("rocm:" + std::to_string(index)), done.text.npos) << done.text;
    }
    EXPECT_EQ(*of_fake<int>("fake_hip_last_error"), 0);
  });
}

TEST_P(HipVersions, EntersTheDeviceAndRestoresTheFormerOne) {
  with(GetParam(), [] {
    void *first = nullptr, *second = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &first).ok());
    calls();
    ASSERT_TRUE(driver()->enter(1, nullptr, &second).ok());
    EXPECT_EQ(current_device(), 1);
    driver()->leave(second);
    EXPECT_EQ(current_device(), 0);
    driver()->leave(first);
    EXPECT_EQ(current_device(), 0);
    calls();
    ASSERT_TRUE(driver()->enter(0, nullptr, &first).ok());
    driver()->leave(first);
    EXPECT_EQ(calls(), "hipGetDevice ");  // nothing is set that is set already
  });
}

TEST_P(HipVersions, AllocatesAndGivesBack) {
  with(GetParam(), [] {
    void *previous = nullptr, *memory = nullptr;
    ASSERT_TRUE(driver()->enter(1, nullptr, &previous).ok());
    EXPECT_EQ(*of_fake<int>("fake_hip_last_error"), 0);  // of asking for pools
    calls();
    ASSERT_TRUE(driver()->allocate(1, nullptr, 1000, &memory).ok());
    const bool pools = std::string(GetParam()) == kHip7;
    EXPECT_EQ(calls(), pools ? "hipMallocAsync " : "hipMalloc ");
    driver()->leave(previous);
    ASSERT_TRUE(driver()->release(1, nullptr, memory).ok());
    const std::string said = calls();
    EXPECT_NE(said.find(pools ? "hipSetDevice hipFreeAsync hipSetDevice "
                              : "hipSetDevice hipFree hipSetDevice "),
              said.npos)
        << said;
    EXPECT_EQ(current_device(), 0);
    fail(pools ? "hipMallocAsync" : "hipMalloc", 2);
    EXPECT_EQ(driver()->allocate(0, nullptr, 1000, &memory).status, OPDOCK_OUT_OF_MEMORY);
  });
}

TEST_P(HipVersions, IsOfNoUseInAForkedChild) {
  with(GetParam(), [] {
    const opdock_device_facts* facts = nullptr;
    ASSERT_TRUE(driver()->facts(0, &facts).ok());
    in_child([] {
      void* previous = nullptr;
      const DriverStatus done = driver()->enter(0, nullptr, &previous);
      EXPECT_EQ(done.status, OPDOCK_DEVICE_ERROR);
      EXPECT_NE(done.text.find("HIP runtime initialised before this process was forked"),
                done.text.npos)
          << done.text;
    });
  });
}

TEST_P(HipVersions, StaysUsableInAChildThatWasForkedBeforeIt) {
  with(GetParam(), [] {
    driver();  // opened, not initialised
    EXPECT_EQ(calls(), "");
    in_child([] {
      const opdock_device_facts* facts = nullptr;
      EXPECT_TRUE(driver()->facts(0, &facts).ok());
    });
  });
}

TEST(HipDriver, RefusesAStreamOfAnotherDevice) {
  with(kHip7, [] {
    int of_one[2] = {1, 0};  // what stands behind the stand-in's stream
    void* previous = nullptr;
    const DriverStatus done = driver()->enter(0, of_one, &previous);
    EXPECT_EQ(done.status, OPDOCK_INVALID_ARGUMENT);
    EXPECT_NE(done.text.find("found a stream of rocm:1, wanted one of rocm:0"), done.text.npos)
        << done.text;
    EXPECT_EQ(current_device(), 0);
    ASSERT_TRUE(driver()->enter(1, of_one, &previous).ok());
    driver()->leave(previous);
    calls();
    ASSERT_TRUE(driver()->enter(0, hip::kStreamPerThread, &previous).ok());
    EXPECT_EQ(calls().find("hipStreamGetDevice"), std::string::npos);
  });
}

TEST(HipDriver, TellsWhetherAStreamIsCaptured) {
  with(kHip5, [] {
    int busy = 1, idle = 0;
    bool capturing = false;
    ASSERT_TRUE(driver()->is_capturing(&busy, &capturing).ok());
    EXPECT_TRUE(capturing);
    ASSERT_TRUE(driver()->is_capturing(&idle, &capturing).ok());
    EXPECT_FALSE(capturing);
    calls();
    ASSERT_TRUE(driver()->is_capturing(nullptr, &capturing).ok());
    EXPECT_EQ(calls(), "");
  });
}

TEST(HipDriver, ReportsEveryStatusWithHipsNameAndLeavesNoErrorBehind) {
  with(kHip7, [] {
    const hip::Api* api = hip::open_api(nullptr);
    ASSERT_NE(api, nullptr);
    const struct {
      int result;
      opdock_status status;
      const char* text;
    } rows[] = {
        {1, OPDOCK_DEVICE_ERROR, "HIP reference"},
        {2, OPDOCK_OUT_OF_MEMORY, "device memory"},
        {3, OPDOCK_DEVICE_ERROR, "fork"},
        {9, OPDOCK_UNSUPPORTED, "fewer threads"},
        {100, OPDOCK_DEVICE_ERROR, "/dev/kfd"},
        {209, OPDOCK_INCOMPATIBLE, "hipErrorNoBinaryForGpu (209)"},
        {500, OPDOCK_NOT_FOUND, "name"},
        {700, OPDOCK_DEVICE_LOST, "hipErrorIllegalAddress (700), an illegal memory access"},
        {719, OPDOCK_DEVICE_LOST, "end this process"},
        {720, OPDOCK_UNSUPPORTED, "fewer blocks"},
        {801, OPDOCK_UNSUPPORTED, "ROCm"},
        {900, OPDOCK_DEVICE_ERROR, "captured"},
    };
    for (const auto& row : rows) {
      *of_fake<int>("fake_hip_last_error") = row.result;
      const DriverStatus done = hip::status_of(*api, row.result, "hipTest");
      EXPECT_EQ(done.status, row.status) << done.text;
      EXPECT_EQ(done.text.find("hipTest: found "), 0u) << done.text;
      EXPECT_NE(done.text.find(row.text), std::string::npos) << done.text;
      EXPECT_EQ(*of_fake<int>("fake_hip_last_error"), 0);
    }
  });
}

TEST(HipDriver, FindsFurtherSymbols) {
  with(kHip7, [] {
    EXPECT_EQ(host_table()->driver_symbol(OPDOCK_ROCM, "hipMalloc"), dlsym(library, "hipMalloc"));
    EXPECT_EQ(driver()->symbol("hipNoSuchThing"), nullptr);
  });
}

// ---- which library

TEST(HipLibrary, TakesTheNewestInEachPlace) {
  const std::vector<std::string> candidates = hip::library_candidates("/somewhere");
  ASSERT_EQ(candidates.size(), 9u);
  EXPECT_EQ(candidates[0], "/somewhere/lib/libamdhip64.so.7");
  EXPECT_EQ(candidates[2], "/somewhere/lib/libamdhip64.so.5");
  EXPECT_EQ(candidates[3], "/opt/rocm/lib/libamdhip64.so.7");
  EXPECT_EQ(candidates[6], "libamdhip64.so.7");
  EXPECT_EQ(candidates[8], "libamdhip64.so.5");
  EXPECT_EQ(hip::library_candidates("").size(), 6u);
}

class RocmFolder {
 public:
  RocmFolder() {
    char name[] = "/tmp/opdock-rocm-XXXXXX";
    root = mkdtemp(name);
    mkdir((root + "/lib").c_str(), 0700);
    setenv("ROCM_PATH", root.c_str(), 1);
  }
  ~RocmFolder() { std::system(("rm -r " + root).c_str()); }
  void add(const char* from, const char* name) {
    EXPECT_EQ(symlink(from, (root + "/lib/" + name).c_str()), 0);
  }
  std::string root;
};

TEST(HipLibrary, IsLookedForInRocmPath) {
  RocmFolder folder;
  folder.add(kHip5, "libamdhip64.so.5");
  folder.add(kHip7, "libamdhip64.so.7");
  in_child([] {
    ASSERT_NE(driver(), nullptr);
    EXPECT_NE(driver()->symbol("hipGetDevicePropertiesR0600"), nullptr);
  });
}

TEST(HipLibrary, IsTheOneThatIsInTheProcessAlready) {
  RocmFolder folder;
  folder.add(kHip7, "libamdhip64.so.7");
  with(kHip5, [] {
    EXPECT_EQ(hip::loaded_library(), kHip5);
    EXPECT_EQ(driver()->symbol("hipMalloc"), dlsym(library, "hipMalloc"));
  });
  in_child([] { EXPECT_EQ(hip::loaded_library(), ""); });
}

TEST(HipLibrary, LacksAFunction) {
  with(FAKE_HIP_FOLDER "/libamdhip64.so.0", [] {
    std::string problem;
    EXPECT_EQ(driver_for(Backend::kRocm, &problem), nullptr);
    EXPECT_NE(problem.find("without hipGetErrorName, wanted HIP 5.2 or newer"), problem.npos)
        << problem;
  });
}

TEST(HipLibrary, CannotBeOpened) {
  RocmFolder folder;
  folder.add("/dev/null", "libamdhip64.so.7");
  in_child([] {
    std::string problem;
    if (void* library = hip::open_library(&problem)) {  // this machine has one
      dlclose(library);
      return;
    }
    EXPECT_NE(problem.find("found no HIP runtime ("), problem.npos) << problem;
    EXPECT_NE(problem.find("install AMD's ROCm"), problem.npos) << problem;
  });
}

// ---- calls

// Stands for a code object: the stand-in looks at nothing of it.
Kernels* kernels_on(int index) {
  static const std::string bytes = "a code object";
  static const std::string names("scale<float>\0scale\0lost\0lost\0", 29);
  const auto span = [](const std::string& text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const ImageRow row{Backend::kRocm, ImageKind::kCodeObject, "gfx90a", Version{5, 2}, span(bytes),
                     span(names)};
  return new Kernels(driver(), {OPDOCK_ROCM, index}, row);
}

// How the op launches is its second argument.
enum How { kPlain, kCooperative, kClusters, kProgrammatic, kMuchShared, kNoSuchKernel };

opdock_status run_scale(const opdock_call* call, const opdock_value* args, uint32_t,
                        opdock_tensor* const*, uint32_t) {
  const int64_t how = args[1].as.i64;
  opdock_kernel* kernel = nullptr;
  const opdock_status status =
      call->host->kernel(call, how == kNoSuchKernel ? "lost" : "scale<float>", &kernel);
  if (status != OPDOCK_OK) return status;
  const void* x = args[0].as.tensor->data;
  double a = 2;
  void* pointers[] = {&x, &a};
  opdock_launch launch{};
  launch.struct_size = sizeof launch;
  launch.grid[0] = 3;
  launch.block[0] = 256;
  launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;
  launch.args = pointers;
  launch.num_args = 2;
  if (how == kCooperative) launch.flags = OPDOCK_LAUNCH_COOPERATIVE;
  if (how == kProgrammatic) launch.flags = OPDOCK_LAUNCH_PROGRAMMATIC;
  if (how == kClusters) launch.cluster[0] = 2;
  if (how == kMuchShared) launch.shared_bytes = 65537;
  return call->host->launch(call, kernel, &launch);
}

struct RocmCall {
  explicit RocmCall(int index) : function(op()) {
    *of_fake<unsigned>("fake_hip_num_args") = 2;
    function.resolver.driver = driver();
    function.resolver.kernels = kernels_on(index);
    x = arguments.tensor({4});
    x->device = {OPDOCK_ROCM, index};
  }
  static const opdock_op* op() {
    static opdock_op op =
        make_op("scale(Tensor x, int how=0) -> ()", OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_CAPTURE_SAFE);
    op.run = run_scale;
    return &op;
  }
  opdock_status operator()(How how = kPlain, void* stream = nullptr) {
    opdock_call_options options{};
    options.struct_size = sizeof options;
    options.stream = stream;
    return function.invoke({A::value(x), A::integer(how)}, {}, &options);
  }
  Arguments arguments;
  opdock_tensor* x;
  TestFunction function;
};

TEST_P(HipVersions, LaunchesOnTheTensorsDevice) {
  with(GetParam(), [] {
    RocmCall call(1);
    ASSERT_EQ(call(), OPDOCK_OK) << call.function.error;
    const std::string said = calls();
    EXPECT_NE(said.find("hipModuleLaunchKernel 3x256@1 "), said.npos) << said;
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(of_fake<uint64_t>("fake_hip_args")[0], reinterpret_cast<uint64_t>(call.x->data));
    EXPECT_EQ(of_fake<uint64_t>("fake_hip_args")[1], 0x4000000000000000u);  // 2.0
    ASSERT_EQ(call(), OPDOCK_OK);
    EXPECT_EQ(calls().find("hipModuleLoadData"), said.npos);  // once for both
  });
}

TEST_P(HipVersions, LaunchesAsAmdCan) {
  with(GetParam(), [] {
    RocmCall call(0);
    const bool is_new = std::string(GetParam()) == kHip7;
    EXPECT_EQ(call(kCooperative), is_new ? OPDOCK_OK : OPDOCK_UNSUPPORTED);
    const std::string said = is_new ? calls() : call.function.error;
    EXPECT_NE(said.find("hipModuleLaunchCooperativeKernel"), said.npos) << said;
    EXPECT_EQ(call(kProgrammatic), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(call(kClusters), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(call.function.error).find("found clusters"), said.npos);
    EXPECT_EQ(call(kMuchShared), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(call.function.error).find("wanted at most 65536"), said.npos)
        << call.function.error;
    EXPECT_EQ(call(kNoSuchKernel), OPDOCK_NOT_FOUND);
  });
}

TEST(HipCall, GivesEachFailureItsStatusAndText) {
  with(kHip7, [] {
    RocmCall call(0);
    fail("hipModuleLoadData", 209);
    EXPECT_EQ(call(), OPDOCK_INCOMPATIBLE);
    EXPECT_NE(std::string(call.function.error)
                  .find("loading the gfx90a code-object on rocm:0: hipModuleLoadData: found "
                        "hipErrorNoBinaryForGpu (209)"),
              std::string::npos)
        << call.function.error;
    fail("hipModuleLaunchKernel", 700);
    EXPECT_EQ(call(), OPDOCK_DEVICE_LOST);
    EXPECT_EQ(*of_fake<int>("fake_hip_last_error"), 0);
    int of_one[2] = {1, 0};
    EXPECT_EQ(call(kPlain, of_one), OPDOCK_INVALID_ARGUMENT);
    EXPECT_EQ(call(), OPDOCK_OK) << call.function.error;
  });
}

}  // namespace
}  // namespace opdock
