// Tests images executed through libcuda: the code folder, the checks of launches, what a finding
// does to its device, and what is written at exit.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <set>

#include "cuda_test_support.h"

namespace softgpu_test {
namespace {

// ---- executing images

TEST(Execute, ALibrarysKernel) {
  cuda_child(json::object(), [] {
    const std::string ptx =
        "//\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry twice(\n"
        " .param .u64 a,\n .param .u32 b\n)\n.maxntid 64, 1, 1\n{ ret; }\n";
    // The macro holds the image's architecture, not the device's.
    add_code(ptx + '\0', "cuda", "compute_80",
             "extern \"C\" OPDOCK_KERNEL(64) twice(int* x, int add) {\n"
             "  x[thread_index()] = 2 * x[thread_index()] + add + OPDOCK_SOFT_ARCH;\n}\n",
             {"twice"});
    CUlibrary library = nullptr;
    CUkernel twice = nullptr;
    const void* const none = nullptr;
    ASSERT_EQ(call("cuLibraryLoadData", &library, static_cast<const void*>(ptx.c_str()), none, none,
                   0u, none, none, 0u),
              CUDA_SUCCESS);
    ASSERT_EQ(call("cuLibraryGetKernel", &twice, library, "twice"), CUDA_SUCCESS);
    CUdeviceptr memory = new_ints(64, 4);
    int add = 1;
    EXPECT_EQ(launch(twice, nullptr, {1, 65, 0}, {&memory, &add}), 701);  // over its launch bound
    EXPECT_EQ(launch(twice, nullptr, {1, 64, 0}, {&memory, &add}), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(memory, 64), std::vector<int>(64, 809));
    EXPECT_EQ(events("launch").back()["args"][1], "01000000");
  });
}

TEST(Execute, SizesOfParametersComeFromTheLibraryToo) {
  cuda_child(json::object(), [] {
    size_t offset = 0, size = 0;
    EXPECT_EQ(call("cuFuncGetParamInfo", kernel("add"), size_t{2}, &offset, &size), CUDA_SUCCESS);
    EXPECT_EQ(offset, 16u);
    EXPECT_EQ(size, 4u);
    EXPECT_EQ(call("cuFuncGetParamInfo", kernel("add"), size_t{3}, &offset, &size),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Execute, AnImageThatIsNotInTheFolderIsNotSilentlySkipped) {
  cuda_child(json::object(), [] {
    const std::string ptx =
        "//\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry lost()\n{ ret; }\n";
    CUmodule module = nullptr;
    CUfunction lost = nullptr;
    ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str())), 0);
    ASSERT_EQ(call("cuModuleGetFunction", &lost, module, "lost"), 0);
    testing::internal::CaptureStderr();
    EXPECT_EQ(launch(lost, nullptr, {}, {}), CUDA_ERROR_NOT_FOUND);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("lost"), said.npos);
    EXPECT_NE(said.find("cannot open"), said.npos) << said;
    // The text of the error code gives the reason too, until the thread's next call.
    const char* text = nullptr;
    EXPECT_EQ(call("cuGetErrorString", CUresult{CUDA_ERROR_NOT_FOUND}, &text), CUDA_SUCCESS);
    const std::string told = text;
    EXPECT_EQ(told.find("named symbol not found: the kernel lost of the image"), 0u) << told;
    EXPECT_NE(told.find("is not executed: cannot open"), told.npos) << told;
    EXPECT_EQ(call("cuGetErrorString", CUresult{CUDA_ERROR_INVALID_VALUE}, &text), CUDA_SUCCESS);
    EXPECT_EQ(std::string(text).find("lost"), std::string::npos);
    EXPECT_EQ(call("cuCtxSynchronize"), CUDA_SUCCESS);
    EXPECT_EQ(call("cuGetErrorString", CUresult{CUDA_ERROR_NOT_FOUND}, &text), CUDA_SUCCESS);
    EXPECT_STREQ(text, "named symbol not found");
  });
}

TEST(Execute, KernelsOfAnotherDtypeAreCompiledWhenOneOfThemIsLaunched) {
  cuda_child(json::object(), [] {
    const std::string one = "_ZN1a3oneIiEEvPT_", two = "_ZN1a3twoIiLi2EEEvPT_";
    const std::string other = "_ZN1a3oneIdEEvPT_";
    std::string ptx = "//\n.version 8.0\n.target sm_80\n.address_size 64\n";
    for (const std::string& name : {one, two, other})
      ptx += ".visible .entry " + name + "(\n .param .u64 x\n)\n{ ret; }\n";
    add_code(ptx + '\0', "cuda", "compute_80",
             "namespace a {\n"
             "template <class T> OPDOCK_KERNEL(64) one(T* x) {\n"
             "  static_assert(sizeof(T) == 4, \"no doubles\");\n  x[thread_index()] += 1;\n}\n"
             "template <class T, int N> OPDOCK_KERNEL(64) two(T* x) { x[thread_index()] += N; }\n"
             "}\n",
             {"a::one<int>", "a::one<double>", "a::two<int, 2>"},
             {{one, "a::one<int>"}, {other, "a::one<double>"}, {two, "a::two<int, 2>"}});
    CUmodule module = nullptr;
    ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str())), 0);
    CUdeviceptr memory = new_ints(64, 4);
    const auto result_of = [&](const std::string& name) {
      CUfunction function = nullptr;
      EXPECT_EQ(call("cuModuleGetFunction", &function, module, name.c_str()), 0);
      return launch(function, nullptr, {1, 64, 0}, {&memory});
    };
    const auto libraries = [] {  // those that this process has opened
      const std::string place = std::filesystem::canonical(folder() / "code" / "lib").string();
      std::set<std::string> found;
      std::ifstream maps("/proc/self/maps");
      for (std::string line; std::getline(maps, line);)
        if (const size_t at = line.find(place); at != line.npos) found.insert(line.substr(at));
      return found.size();
    };
    EXPECT_EQ(result_of(two), CUDA_SUCCESS);
    EXPECT_EQ(result_of(one), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(memory, 64), std::vector<int>(64, 7));
    EXPECT_EQ(libraries(), 1u) << "kernels of one namespace and dtype are one library";
    testing::internal::CaptureStderr();
    EXPECT_EQ(result_of(other), CUDA_ERROR_NOT_FOUND);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("no doubles"), said.npos) << said;
  });
}

TEST(Execute, LaunchesAreChecked) {
  cuda_child(json::object(), [] {
    CUdeviceptr memory = new_ints(kCount, 0);
    int count = 0, value = 0;
    const std::vector<void*> arguments = {&memory, &count, &value};
    const CUfunction fill = kernel("fill");
    EXPECT_EQ(launch(fill, nullptr, {1, 1024, 0}, arguments), CUDA_SUCCESS);
    EXPECT_EQ(launch(fill, nullptr, {1, 1025, 0}, arguments), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(fill, nullptr, {1, 32, 65536}, arguments), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(call("cuFuncSetAttribute", fill, 8, 228 * 1024), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(call("cuFuncSetAttribute", fill, 8, 65536), CUDA_SUCCESS);
    EXPECT_EQ(launch(fill, nullptr, {1, 32, 65536}, arguments), CUDA_SUCCESS);

    const auto with = [&](const CUlaunchAttribute& attribute, unsigned grid) {
      CUlaunchAttribute copy = attribute;
      const CUlaunchConfig config{grid, 1, 1, 32, 1, 1, 0, nullptr, &copy, 1};
      std::vector<void*> pointers = arguments;
      return call("cuLaunchKernelEx", &config, fill, pointers.data(), static_cast<void**>(nullptr));
    };
    CUlaunchAttribute cluster{};
    cluster.id = 4;
    cluster.cluster = {4, 1, 1};
    EXPECT_EQ(with(cluster, 8), CUDA_SUCCESS);
    EXPECT_EQ(with(cluster, 6), CUDA_ERROR_INVALID_VALUE);
    cluster.cluster = {16, 1, 1};
    EXPECT_EQ(with(cluster, 16), 912);
    CUlaunchAttribute cooperative{};
    cooperative.id = 2;
    cooperative.value = 1;
    EXPECT_EQ(with(cooperative, 4 * 16), CUDA_SUCCESS);
    EXPECT_EQ(with(cooperative, 4 * 16 + 1), 720);
    EXPECT_EQ(call("cuCtxSynchronize"), CUDA_SUCCESS);
  });
}

// ---- findings

struct Fault {
  const char* what;
  CUresult result;
  const char* text;
};
class Faults : public testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Values(Fault{"bounds", 700, "out-of-bounds write"},
                                         Fault{"misalign", 716, "misaligned"},
                                         Fault{"race", 719, "race"}));

TEST_P(Faults, FailTheirDeviceForGood) {
  cuda_child(json::object(), [] {
    const std::string what = GetParam().what;
    CUdeviceptr memory = new_ints(8, 0);
    const CUfunction fill = kernel("fill");
    int count = 8, value = 1;
    static bool called = false;
    void (*const waiting)(void*) = [](void*) { called = true; };
    Gate gate;
    CUresult result = hold(nullptr, &gate);
    if (what == "bounds") result = launch_fill(memory, 9, 1, nullptr);
    if (what == "misalign") result = launch(kernel("misalign"), nullptr, {}, {&memory});
    if (what == "race") result = launch(kernel("race"), nullptr, {1, 64, 0}, {&memory});
    EXPECT_EQ(result, CUDA_SUCCESS);
    EXPECT_EQ(call("cuLaunchHostFunc", CUstream{nullptr}, waiting, static_cast<void*>(nullptr)), 0);
    gate.open();
    EXPECT_EQ(call("cuCtxSynchronize"), GetParam().result);
    EXPECT_FALSE(called);  // work queued behind a fault is dropped
    EXPECT_TRUE(found(GetParam().text));
    // Every later call for this device returns the same error and does nothing.
    CUdeviceptr more = 0;
    EXPECT_EQ(call("cuMemAlloc_v2", &more, size_t{8}), GetParam().result);
    EXPECT_EQ(launch(fill, nullptr, {}, {&memory, &count, &value}), GetParam().result);
    EXPECT_EQ(call("cuMemFree_v2", memory), GetParam().result);
    // The other device still works.
    CUcontext other = nullptr;
    ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &other, 1), CUDA_SUCCESS);
    ASSERT_EQ(call("cuCtxSetCurrent", other), CUDA_SUCCESS);
    EXPECT_EQ(ints_at(new_ints(8, 3), 8), std::vector<int>(8, 3));
  });
}

TEST(Execute, ConfiguredFailuresWorkHereToo) {
  const json failures = {
      {{"function", "cuMemAlloc_v2"}, {"call", 2}, {"error", 2}},
      {{"function", "cuLaunchKernel"}, {"call", 2}, {"error", 701}},
      {{"function", "cuCtxSynchronize"}, {"call", 3}, {"error", 700}, {"sticky", true}}};
  cuda_child({{"failures", failures}}, [] {
    const CUdeviceptr memory = new_ints(kCount, 1);
    CUdeviceptr more = 0;
    EXPECT_EQ(call("cuMemAlloc_v2", &more, kBytes), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(call("cuMemAlloc_v2", &more, size_t{1} << 20), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(launch_fill(memory, kCount, 2, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(launch_fill(memory, kCount, 3, nullptr), 701);
    EXPECT_EQ(ints_at(memory, kCount), std::vector<int>(kCount, 2));
    EXPECT_EQ(call("cuCtxSynchronize"), CUDA_SUCCESS);
    EXPECT_EQ(call("cuCtxSynchronize"), 700);
    EXPECT_EQ(call("cuMemFree_v2", memory), 700);
  });
}

// ---- at exit

TEST(Execute, LeaksAreFoundAtTheEnd) {
  cuda_child(
      {{"leaks", true}},
      [] {
        const CUstream stream = new_stream();
        call("cuMemFree_v2", new_memory(100));
        new_memory(48);
        call("cuMemFreeAsync", new_ordered(stream, kCount), stream);
        new_ordered(stream, kCount);
        void* pinned = nullptr;
        call("cuMemHostAlloc", &pinned, size_t{24}, 0u);
        EXPECT_TRUE(findings().empty());
      },
      [] {
        EXPECT_EQ(findings().size(), 3u);
        EXPECT_TRUE(
            found("leak: 48 bytes of memory of cuda:0, made by cuMemAlloc_v2 (its "
                  "allocation 2)"));
        EXPECT_TRUE(
            found("leak: 400 bytes of memory of cuda:0, made by cuMemAllocAsync "
                  "(its allocation 2)"));
        EXPECT_TRUE(found("leak: 24 bytes of pinned host memory"));
      });
}

TEST(Execute, CountersAreWrittenAtTheEnd) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("counters-" + std::to_string(getpid()))).string();
  cuda_child({{"counters", path}},
             [] { EXPECT_EQ(launch_fill(new_memory(kBytes), kCount, 1, nullptr), CUDA_SUCCESS); });
  std::ifstream file(path);
  const json counters = json::parse(file);
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0]["kernel"], "fill");
  EXPECT_EQ(counters[0]["launches"], 1);
  EXPECT_EQ(counters[0]["global_store_sectors"], (kBytes + 31) / 32);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace softgpu_test
