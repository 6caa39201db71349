// Tests the stand-in driver itself: what it refuses and what it records.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "softgpu/driver/cuda_types.h"

namespace {

using nlohmann::json;

// The library reads these variables once, so they are set before it is opened.
const char kConfig[] = R"({"cuda": 12040, "gpus": [
  {"arch": "sm_90", "name": "First", "memory": 1048576}, {"arch": "sm_75", "attributes": {"16": 40}}],
  "failures": [{"function": "cuMemHostAlloc", "call": 2, "error": 2},
               {"function": "cuCtxSynchronize", "call": 2, "error": 700, "sticky": true}]})";

std::string record_path() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("opdock-softgpu-" + std::to_string(getpid())))
          .string();
  return path;
}

void* library() {
  static void* const handle = [] {
    setenv("OPDOCK_SOFTGPU", kConfig, 1);
    setenv("OPDOCK_SOFTGPU_RECORD", record_path().c_str(), 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return dlopen(BUILD_FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  }();
  return handle;
}

template <typename... Arguments>
CUresult call(const char* name, Arguments... arguments) {
  auto* const function = reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(library(), name));
  if (!function) throw std::runtime_error(std::string(name) + " is missing");
  return function(arguments...);
}

std::vector<json> events(const char* event) {
  std::vector<json> found;
  std::ifstream file(record_path());
  for (std::string line; std::getline(file, line);) {
    json parsed = json::parse(line);
    if (parsed["event"] == event) found.push_back(std::move(parsed));
  }
  return found;
}

// Returns a cubin that is only a header, in the older layout (flags in the lowest byte) or the
// newer one.
std::string cubin(unsigned arch, bool newer = false, unsigned extra_flags = 0) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_ABIVERSION] = newer ? 8 : 7;
  header.e_machine = 190;
  header.e_flags = (newer ? arch << 8 : arch) | extra_flags;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header);
}

std::string ptx(const char* version, const char* target) {
  return std::string("//\n.version ") + version + "\n.target " + target +
         "\n.address_size 64\n.visible .entry axpy(\n .param .u64 axpy_param_0,\n"
         " .param .f32 axpy_param_1,\n .param .align 8 .b8 axpy_param_2[24]\n)\n{ ret; }\n";
}

class Softgpu : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library(), nullptr) << dlerror();
    ASSERT_EQ(call("cuInit", 0u), CUDA_SUCCESS);
    ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(call("cuCtxSetCurrent", context_), CUDA_SUCCESS);
  }
  static void TearDownTestSuite() { std::remove(record_path().c_str()); }

  CUresult load(const std::string& image) {
    return call("cuModuleLoadData", &module_, static_cast<const void*>(image.c_str()));
  }

  void* context_ = nullptr;
  void* module_ = nullptr;
};

TEST_F(Softgpu, ShowsItsGpus) {
  int count = 0, value = 0;
  char name[64] = {};
  EXPECT_EQ(call("cuDeviceGetCount", &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(call("cuDeviceGetName", static_cast<char*>(name), 64, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "First");
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 75, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 16, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, 40);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 16, 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(Softgpu, TakesTheImagesThatTheDriverTakes) {
  EXPECT_EQ(load(cubin(90)), CUDA_SUCCESS);
  EXPECT_EQ(load(cubin(90, false, 0x800)), CUDA_SUCCESS);  // sm_90a
  EXPECT_EQ(load(ptx("8.4", "sm_80")), CUDA_SUCCESS);
  EXPECT_EQ(load(cubin(80)), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(cubin(100, true)), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(cubin(90, true)), CUDA_ERROR_NO_BINARY_FOR_GPU);  // made by CUDA 13
  EXPECT_EQ(load(ptx("8.4", "sm_100")), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(ptx("8.4", "sm_80a")), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(ptx("8.5", "sm_80")), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(load("PK\3\4"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load("// no version\n"), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(Softgpu, RecordsLoadsLookupsAndLaunches) {
  const std::string image = ptx("8.0", "sm_75");
  ASSERT_EQ(load(image), CUDA_SUCCESS);
  const json line = events("load").back();
  EXPECT_EQ(line["arch"], "compute_75");
  EXPECT_EQ(line["size"], image.size() + 1);
  EXPECT_EQ(line["device"], 0);
  EXPECT_EQ(line["sha256"].get<std::string>().size(), 64u);

  void* function = nullptr;
  EXPECT_EQ(call("cuModuleGetFunction", &function, module_, "nothing"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(call("cuModuleGetFunction", &function, module_, "axpy"), CUDA_SUCCESS);
  EXPECT_EQ(events("function").back()["found"], true);

  uint64_t pointer = 0x1122334455667788;
  float scale = 1.0f;
  unsigned char block[24] = {7};
  void* arguments[] = {&pointer, &scale, block};
  const auto launch = [&](unsigned grid, unsigned threads, unsigned shared) {
    void* const none = nullptr;
    return call("cuLaunchKernel", function, grid, 1u, 1u, threads, 1u, 1u, shared, none,
                static_cast<void**>(arguments), static_cast<void**>(nullptr));
  };
  EXPECT_EQ(launch(0, 32, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 32, 65536), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(call("cuFuncSetAttribute", function, 8, 65536), CUDA_SUCCESS);
  EXPECT_EQ(launch(3, 32, 65536), CUDA_SUCCESS);
  const json launched = events("launch").back();
  EXPECT_EQ(launched["function"], "axpy");
  EXPECT_EQ(launched["grid"], json({3, 1, 1}));
  EXPECT_EQ(launched["block"], json({32, 1, 1}));
  EXPECT_EQ(launched["args"][0], "8877665544332211");
  EXPECT_EQ(launched["args"][1], "0000803f");
  EXPECT_EQ(launched["args"][2].get<std::string>().substr(0, 4), "0700");
}

TEST_F(Softgpu, MemoryIsTheHostsWithTheDriversRules) {
  CUdeviceptr memory = 0;
  int value = 5, back = 0;
  ASSERT_EQ(call("cuMemAlloc_v2", &memory, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(call("cuMemcpyHtoD_v2", memory, static_cast<const void*>(&value), sizeof value),
            CUDA_SUCCESS);
  EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void*>(&back), memory, sizeof back), CUDA_SUCCESS);
  EXPECT_EQ(back, 5);
  EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void*>(&back), memory + 1, sizeof back),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(call("cuMemFree_v2", memory), CUDA_SUCCESS);
  EXPECT_EQ(call("cuMemFree_v2", memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, size_t{2} << 20), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Softgpu, ACaptureForbidsWhatItForbids) {
  void *stream = nullptr, *graph = nullptr;
  CUdeviceptr memory = 0;
  int capturing = 0;
  ASSERT_EQ(call("cuStreamCreate", &stream, 0u), CUDA_SUCCESS);
  ASSERT_EQ(call("cuStreamBeginCapture_v2", stream, 0), CUDA_SUCCESS);
  EXPECT_EQ(call("cuStreamIsCapturing", stream, &capturing), CUDA_SUCCESS);
  EXPECT_EQ(capturing, 1);
  EXPECT_EQ(call("cuStreamSynchronize", stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, size_t{8}), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(load(cubin(90)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(call("cuStreamSynchronize", stream), CUDA_SUCCESS);
  EXPECT_EQ(call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
  EXPECT_EQ(call("cuStreamSynchronize", stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Softgpu, KnowsNamesByVersion) {
  void* function = nullptr;
  int status = -1;
  const uint64_t flags = 0;
  EXPECT_EQ(call("cuGetProcAddress_v2", "cuMemAlloc", &function, 12000, flags, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(function, dlsym(library(), "cuMemAlloc_v2"));
  EXPECT_EQ(call("cuGetProcAddress_v2", "cuLibraryLoadData", &function, 11080, flags, &status),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(call("cuGetProcAddress_v2", "cuNothing", &function, 12000, flags, &status),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, 1);
}

// The CUDA runtime calls functions from the driver's tables; with an empty table it would call a
// null pointer.
TEST_F(Softgpu, RefusesTablesThatNobodyDocuments) {
  const void* table = this;
  const unsigned char nobodys[16] = {1},
                      nvrtcs[16] = {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                    0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
  EXPECT_EQ(call("cuGetExportTable", &table, nobodys), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(table, nullptr);
  ASSERT_EQ(call("cuGetExportTable", &table, nvrtcs), CUDA_SUCCESS);
  EXPECT_EQ(*static_cast<const size_t*>(table), sizeof(size_t));
}

TEST_F(Softgpu, FailsTheNthCall) {
  void* memory = nullptr;
  EXPECT_EQ(call("cuMemHostAlloc", &memory, size_t{8}, 0u), CUDA_SUCCESS);
  EXPECT_EQ(call("cuMemFreeHost", memory), CUDA_SUCCESS);
  EXPECT_EQ(call("cuMemHostAlloc", &memory, size_t{8}, 0u), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(call("cuMemHostAlloc", &memory, size_t{8}, 0u), CUDA_SUCCESS);
  EXPECT_EQ(call("cuMemFreeHost", memory), CUDA_SUCCESS);
}

// Runs in a child process, since nothing works after a sticky error.
TEST_F(Softgpu, AStickyErrorStays) {
  EXPECT_EXIT(
      {
        const bool first =
            call("cuCtxSynchronize") == CUDA_ERROR_NOT_INITIALIZED;  // after the fork
        std::exit(first ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EQ(call("cuCtxSynchronize"), CUDA_SUCCESS);
  EXPECT_EQ(call("cuCtxSynchronize"), 700);
  int count = 0;
  EXPECT_EQ(call("cuDeviceGetCount", &count), 700);
}

}  // namespace
