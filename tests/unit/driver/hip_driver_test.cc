// Tests the HIP driver and the call path over it with the stand-ins for HIP 5 and 6. A library is
// opened only once per process, so each test runs in its own child.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "code_object.h"
#include "driver/driver.h"
#include "driver/gpu_driver.h"
#include "driver/hip_api.h"
#include "driver/hip_library.h"
#include "support/soft_child.h"
#include "unit/call/support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;
using nlohmann::json;

constexpr char kHip5[] = SOFTGPU_HIP5;
constexpr char kHip6[] = SOFTGPU_HIP6;
constexpr char kTwoGpus[] =
    R"({"gpus": [{"arch": "gfx90a", "memory": 1000000, "multiprocessors": 104},
        {"arch": "gfx1030", "memory": 2000000}]})";

void* library = nullptr;  // the stand-in
std::string record;       // the stand-in's record file

template <typename... Arguments>
int call_hip(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name))(arguments...);
}
int current_device() {
  int device = -1;
  EXPECT_EQ(call_hip("hipGetDevice", &device), 0);
  return device;
}
void* new_stream(int device) {
  const int before = current_device();
  void* stream = nullptr;
  EXPECT_EQ(call_hip("hipSetDevice", device), 0);
  EXPECT_EQ(call_hip("hipStreamCreate", &stream), 0);
  EXPECT_EQ(call_hip("hipSetDevice", before), 0);
  return stream;
}
std::vector<json> events(const std::string& name) {
  return soft_child::recorded(record, name);
}

Driver* driver() {
  Driver* found = nullptr;
  const Status opened = driver_for(Backend::kRocm, &found);
  EXPECT_TRUE(opened.ok() && found != nullptr) << opened.text;
  return found;
}

// Runs `body` in a child that has loaded the library already, as a framework would have.
void with(const char* path, const std::function<void()>& body, const char* config = kTwoGpus) {
  char name[] = "/tmp/opdock-record-XXXXXX";
  close(mkstemp(name));
  soft_child::run([&] {
    record = name;
    setenv("OPDOCK_SOFTGPU", config, 1);
    setenv("OPDOCK_SOFTGPU_RECORD", name, 1);
    for (const char* one : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                            "HSA_XNACK", "ROCM_PATH"})
      unsetenv(one);
    library = dlopen(path, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    body();
  });
  unlink(name);
}

class HipVersions : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Both, HipVersions, testing::Values(kHip5, kHip6),
                         [](const auto& one) { return one.index == 0 ? "Hip5" : "Hip6"; });

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
    EXPECT_EQ(facts->memory_bytes, 1000000u);
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
      const Status done = driver()->facts(index, &facts);
      EXPECT_EQ(done.status, OPDOCK_DEVICE_ERROR) << index;
      EXPECT_NE(done.text.find("rocm:" + std::to_string(index)), done.text.npos) << done.text;
    }
    EXPECT_EQ(call_hip("hipGetLastError"), 0);
  });
}

TEST_P(HipVersions, EntersTheDeviceAndRestoresTheFormerOne) {
  with(GetParam(), [] {
    void *first = nullptr, *second = nullptr, *again = nullptr;
    ASSERT_TRUE(driver()->enter(0, nullptr, &first).ok());
    ASSERT_TRUE(driver()->enter(1, nullptr, &second).ok());
    EXPECT_EQ(current_device(), 1);
    ASSERT_TRUE(driver()->enter(1, nullptr, &again).ok());
    driver()->leave(again);
    EXPECT_EQ(current_device(), 1);
    driver()->leave(second);
    EXPECT_EQ(current_device(), 0);
    driver()->leave(first);
    EXPECT_EQ(current_device(), 0);
  });
}

TEST_P(HipVersions, AllocatesInStreamOrderAndGivesBack) {
  with(GetParam(), [] {
    void *previous = nullptr, *memory = nullptr;
    ASSERT_TRUE(driver()->enter(1, nullptr, &previous).ok());
    ASSERT_TRUE(driver()->allocate(1, nullptr, 1000, &memory).ok());
    driver()->leave(previous);
    ASSERT_TRUE(driver()->release(1, nullptr, memory).ok());
    EXPECT_EQ(current_device(), 0);
    ASSERT_EQ(events("allocate").size(), 1u);
    EXPECT_EQ(events("allocate")[0].at("device"), 1);
    EXPECT_EQ(events("free").size(), 1u);
    const Status done = driver()->allocate(0, nullptr, 3000000, &memory);
    EXPECT_EQ(done.status, OPDOCK_OUT_OF_MEMORY);
    EXPECT_NE(done.text.find("hipMallocAsync: hipErrorOutOfMemory (2)"), done.text.npos)
        << done.text;
    EXPECT_EQ(call_hip("hipGetLastError"), 0);
  });
}

TEST(HipDriver, AllocatesWithoutPoolsWhereThereAreNone) {
  with(
      kHip6,
      [] {
        void* memory = nullptr;
        const Status done = driver()->allocate(0, nullptr, 1000, &memory);
        ASSERT_TRUE(done.ok()) << done.text;
        EXPECT_TRUE(driver()->release(0, nullptr, memory).ok());
        EXPECT_EQ(events("free").size(), 1u);
      },
      R"({"gpus": [{"arch": "gfx906", "memory": 100000, "attributes": {"88": 0}}],
          "failures": [{"function": "hipMallocAsync", "error": 801}]})");
}

TEST(HipDriver, SaysThatThereIsNoGpu) {
  with(
      kHip6,
      [] {
        const opdock_device_facts* facts = nullptr;
        const Status done = driver()->facts(0, &facts);
        EXPECT_EQ(done.status, OPDOCK_DEVICE_ERROR);
        EXPECT_NE(done.text.find("hipErrorNoDevice (100)"), done.text.npos) << done.text;
        EXPECT_NE(done.text.find("ROCR_VISIBLE_DEVICES"), done.text.npos) << done.text;
      },
      R"({"gpus": []})");
}

TEST(HipDriver, NamesTheGpuThatCannotBeAsked) {
  with(
      kHip6,
      [] {
        const opdock_device_facts* facts = nullptr;
        const Status done = driver()->facts(1, &facts);
        EXPECT_EQ(done.text.find("rocm:1: hipDeviceTotalMem: hipErrorUnknown (999)"), 0u)
            << done.text;
      },
      R"({"gpus": [{"arch": "gfx906"}, {"arch": "gfx906"}],
          "failures": [{"function": "hipDeviceTotalMem", "error": 999}]})");
}

TEST_P(HipVersions, IsOfNoUseInAForkedChild) {
  with(GetParam(), [] {
    const opdock_device_facts* facts = nullptr;
    ASSERT_TRUE(driver()->facts(0, &facts).ok());
    soft_child::run([] {
      void* previous = nullptr;
      const Status done = driver()->enter(0, nullptr, &previous);
      EXPECT_EQ(done.status, OPDOCK_DEVICE_ERROR);
      EXPECT_NE(done.text.find("HIP runtime was initialised before this process was forked"),
                done.text.npos)
          << done.text;
    });
  });
}

TEST_P(HipVersions, StaysUsableInAChildThatWasForkedBeforeIt) {
  with(GetParam(), [] {
    driver();  // opened, not initialised
    EXPECT_TRUE(events("init").empty());
    soft_child::run([] {
      const opdock_device_facts* facts = nullptr;
      EXPECT_TRUE(driver()->facts(0, &facts).ok());
    });
  });
}

TEST_P(HipVersions, RefusesAStreamOfAnotherDevice) {
  with(GetParam(), [] {
    void* const stream = new_stream(1);
    void* previous = nullptr;
    const Status done = driver()->enter(0, stream, &previous);
    EXPECT_EQ(done.status, OPDOCK_INVALID_ARGUMENT);
    EXPECT_NE(done.text.find("found a stream of rocm:1, wanted one of rocm:0"), done.text.npos)
        << done.text;
    EXPECT_EQ(current_device(), 0);
    ASSERT_TRUE(driver()->enter(1, stream, &previous).ok());
    EXPECT_EQ(current_device(), 1);
    driver()->leave(previous);
    ASSERT_TRUE(driver()->enter(0, kStreamPerThread, &previous).ok());
    driver()->leave(previous);
  });
}

TEST_P(HipVersions, TellsWhetherAStreamIsCaptured) {
  with(GetParam(), [] {
    bool capturing = true;
    void* const stream = new_stream(0);
    ASSERT_TRUE(driver()->is_capturing(stream, &capturing).ok());
    EXPECT_FALSE(capturing);
    ASSERT_EQ(call_hip("hipStreamBeginCapture", stream, 2), 0);
    ASSERT_TRUE(driver()->is_capturing(stream, &capturing).ok());
    EXPECT_TRUE(capturing);
    ASSERT_TRUE(driver()->is_capturing(nullptr, &capturing).ok());
    EXPECT_FALSE(capturing);
  });
}

TEST(HipDriver, ReportsEveryStatusWithHipsNameAndLeavesNoErrorBehind) {
  with(kHip6, [] {
    const hip::Api* api = nullptr;
    hip::open_api(&api);
    ASSERT_NE(api, nullptr);
    const struct {
      int result;
      opdock_status status;
      const char* text;
    } rows[] = {
        {1, OPDOCK_DEVICE_ERROR, "hipErrorInvalidValue (1)"},
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
      call_hip("hipSetDevice", 99);  // leaves an error behind
      const Status done = hip::status_of(*api, row.result, "hipTest");
      EXPECT_EQ(done.status, row.status) << done.text;
      EXPECT_EQ(done.text.find("hipTest: "), 0u) << done.text;
      EXPECT_NE(done.text.find(row.text), std::string::npos) << done.text;
      EXPECT_EQ(call_hip("hipGetLastError"), 0);
    }
  });
}

TEST(HipDriver, FindsFurtherSymbols) {
  with(kHip6, [] {
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

// A folder for $ROCM_PATH whose `lib` is a new folder, or a link to the given one.
class RocmFolder {
 public:
  explicit RocmFolder(const std::filesystem::path& lib = "") {
    char name[] = "/tmp/opdock-rocm-XXXXXX";
    root = mkdtemp(name);
    if (lib.empty()) {
      std::filesystem::create_directory(root / "lib");
    } else {
      std::filesystem::create_symlink(lib, root / "lib");
    }
    setenv("ROCM_PATH", root.c_str(), 1);
  }
  ~RocmFolder() {
    unsetenv("ROCM_PATH");
    std::filesystem::remove_all(root);
  }
  void add(const char* from, const char* name) {
    std::filesystem::create_symlink(from, root / "lib" / name);
  }
  std::filesystem::path root;
};

TEST(HipLibrary, IsLookedForInRocmPath) {
  const RocmFolder folder(std::filesystem::path(kHip6).parent_path());
  soft_child::run([&] {
    ASSERT_NE(driver(), nullptr);
    EXPECT_EQ(hip::loaded_library(), folder.root / "lib" / "libamdhip64.so.6");
    EXPECT_NE(driver()->symbol("hipGetDevicePropertiesR0600"), nullptr);
  });
}

TEST(HipLibrary, IsTheOneThatIsInTheProcessAlready) {
  with(kHip5, [] {
    const RocmFolder folder(std::filesystem::path(kHip6).parent_path());
    EXPECT_EQ(hip::loaded_library(), kHip5);
    EXPECT_EQ(driver()->symbol("hipMalloc"), dlsym(library, "hipMalloc"));
    EXPECT_EQ(driver()->symbol("hipGetDevicePropertiesR0600"), nullptr);
  });
  soft_child::run([] { EXPECT_EQ(hip::loaded_library(), ""); });
}

TEST(HipLibrary, LacksAFunction) {
  Dl_info math{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(std::cos)), &math), 0);
  RocmFolder folder;
  folder.add(math.dli_fname, "libamdhip64.so.7");
  soft_child::run([] {
    Driver* found = nullptr;
    const Status opened = driver_for(Backend::kRocm, &found);
    EXPECT_EQ(opened.status, OPDOCK_INCOMPATIBLE);
    EXPECT_EQ(found, nullptr);
    EXPECT_NE(opened.text.find("older than HIP 5.2: libamdhip64 has no hipInit"), opened.text.npos)
        << opened.text;
  });
}

TEST(HipLibrary, CannotBeOpened) {
  RocmFolder folder;
  folder.add("/dev/null", "libamdhip64.so.7");
  soft_child::run([] {
    void* opened = nullptr;
    const std::string text = hip::open_library(&opened).text;
    if (opened != nullptr) {  // this machine has a HIP runtime
      dlclose(opened);
      return;
    }
    EXPECT_NE(text.find("no HIP runtime: "), text.npos) << text;
    EXPECT_NE(text.find("Install AMD's ROCm"), text.npos) << text;
  });
}

// ---- calls

const std::string& image_of(uint32_t mach) {
  static std::map<uint32_t, std::string> all;
  const json metadata = {
      {"amdhsa.kernels",
       {{{".name", "scale"},
         {".max_flat_workgroup_size", 1024},
         {".group_segment_fixed_size", 40000},
         {".args", {kernel_arg(0, 8, "global_buffer"), kernel_arg(8, 8, "by_value")}}}}}};
  return all.try_emplace(mach, code_object(packed(metadata), mach)).first->second;
}

// Returns kernels whose image is for the processor `mach`: 0x3f is gfx90a, 0x36 is gfx1030.
// RocmCall uses gfx1030 on device 1 by default.
Kernels* kernels_on(int index, uint32_t mach) {
  static const std::string names("scale<float>\0scale\0lost\0lost\0", 29);
  const auto span = [](const std::string& text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const ImageRow row{Backend::kRocm, ImageKind::kCodeObject, "gfx90a",
                     Version{5, 2},  span(image_of(mach)),   span(names)};
  static const char* const kernels[] = {"scale<float>", "lost"};
  Kernels* const made = new Kernels(driver(), {OPDOCK_ROCM, index}, row);
  made->number(kernels, 2);
  return made;
}

// How the op launches; passed as its second argument.
enum How {
  kPlain,
  kCooperative,
  kClusters,
  kProgrammatic,
  kMaxShared,
  kMuchShared,
  kNoSuchKernel,
  kOneArgument
};

opdock_status run_scale(const opdock_call* call, const opdock_value* args, uint32_t, opdock_value*,
                        uint32_t) {
  const int64_t how = args[1].as.i64;
  opdock_kernel* kernel = nullptr;
  const opdock_status status = call->host->kernel(call, how == kNoSuchKernel ? 1 : 0, &kernel);
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
  if (how == kMaxShared) launch.shared_bytes = 65536 - 40000;
  if (how == kMuchShared) launch.shared_bytes = 65536 - 40000 + 1;
  if (how == kOneArgument) launch.num_args = 1;
  return call->host->launch(call, kernel, &launch);
}

struct RocmCall {
  explicit RocmCall(int index, uint32_t mach = 0) : function(op()) {
    if (mach == 0) mach = index == 0 ? 0x3f : 0x36;
    function.resolver.driver = driver();
    function.resolver.kernels = kernels_on(index, mach);
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
    void* const stream = new_stream(1);
    ASSERT_EQ(call(kPlain, stream), OPDOCK_OK) << call.function.error;
    ASSERT_EQ(call(), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(events("load").size(), 1u);  // once for both calls
    const std::vector<json> launches = events("launch");
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches[0].at("function"), "scale");
    EXPECT_EQ(launches[0].at("device"), 1);
    EXPECT_EQ(launches[0].at("grid"), json({3, 1, 1}));
    EXPECT_EQ(launches[0].at("block"), json({256, 1, 1}));
    EXPECT_NE(launches[0].at("stream"), launches[1].at("stream"));
    EXPECT_EQ(launches[0].at("args").at(1), "0000000000000040");  // 2.0
  });
}

TEST_P(HipVersions, LaunchesAsAmdCan) {
  with(GetParam(), [] {
    RocmCall call(0);
    const auto refused = [&](How how, opdock_status status, const char* text) {
      EXPECT_EQ(call(how), status) << call.function.error;
      EXPECT_NE(std::string(call.function.error).find(text), std::string::npos)
          << call.function.error;
    };
    EXPECT_EQ(call(kCooperative), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(call(kProgrammatic), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(call(kMaxShared), OPDOCK_OK) << call.function.error;
    EXPECT_EQ(events("launch").size(), 3u);
    refused(kClusters, OPDOCK_UNSUPPORTED, "found clusters");
    refused(
        kMuchShared, OPDOCK_UNSUPPORTED,
        "launch(): found 25537 bytes of dynamic shared memory, wanted at most 25536 on this GPU, "
        "as the kernel has 40000 of its own");
    refused(kNoSuchKernel, OPDOCK_NOT_FOUND, "hipModuleGetFunction: hipErrorNotFound (500)");
    refused(kOneArgument, OPDOCK_INTERNAL,
            "found 1 argument, wanted the kernel's 2; rebuild the plugin");
    EXPECT_EQ(events("launch").size(), 3u);
  });
}

TEST(HipCall, AnImageForAnotherGpu) {
  with(kHip6, [] {
    RocmCall call(0, 0x36);
    EXPECT_EQ(call(), OPDOCK_INCOMPATIBLE);
    EXPECT_NE(std::string(call.function.error)
                  .find("loading the gfx90a code-object on rocm:0: hipModuleLoadData: "
                        "hipErrorNoBinaryForGpu (209)"),
              std::string::npos)
        << call.function.error;
    EXPECT_EQ(call_hip("hipGetLastError"), 0);
  });
}

TEST(HipCall, AKernelThatFailsLosesTheDevice) {
  with(
      kHip6,
      [] {
        RocmCall call(0);
        EXPECT_EQ(call(kPlain, new_stream(1)), OPDOCK_INVALID_ARGUMENT);
        EXPECT_EQ(call(), OPDOCK_DEVICE_LOST);
        EXPECT_NE(std::string(call.function.error)
                      .find("hipErrorIllegalAddress (700), an illegal memory access"),
                  std::string::npos)
            << call.function.error;
      },
      R"({"gpus": [{"arch": "gfx90a", "memory": 1000}, {"arch": "gfx90a", "memory": 1000}],
          "failures": [{"function": "hipModuleLaunchKernel", "error": 700, "sticky": true}]})");
}

}  // namespace
}  // namespace opdock
