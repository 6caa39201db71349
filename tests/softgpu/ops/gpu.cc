// SPDX-License-Identifier: Apache-2.0
#include "gpu.h"

#include <cstdlib>
#include <fstream>

#include "softgpu/driver/cuda_types.h"
#include "support/tree_plugins.h"

namespace softgpu_ops {
namespace {

namespace fs = std::filesystem;

constexpr int kToDevice = 1, kToHost = 2;  // hipMemcpyKind
constexpr unsigned kNonBlocking = 1, kNoTiming = 2;

bool amd = false;  // set in the child: the driver is AMD's

const char* either(const char* cuda, const char* hip) {
  return amd ? hip : cuda;
}

CUdeviceptr address(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

void prepare_host() {
  setenv("OPDOCK_PLUGIN_PATH", PLUGINS, 1);
  setenv("OPDOCK_BUILD", "never", 1);
  setenv("OPDOCK_JIT", "never", 1);
  setenv("OPDOCK_FALLBACK", "error", 1);
  setenv("OPDOCK_GEMM", "plain", 1);  // the GEMM libraries need a real GPU
  setenv("OPDOCK_ATTENTION", "own", 1);
  // The host learns facts about CUDA GPUs from a process of its own, which opens the libraries
  // itself.
  const char* others = std::getenv("LD_LIBRARY_PATH");
  const std::string drivers = fs::path(SOFTGPU_KFD).parent_path().string();
  setenv("LD_LIBRARY_PATH", others ? (drivers + ":" + others).c_str() : drivers.c_str(), 1);
  // Facts about AMD GPUs come from the kernel driver.
  setenv("OPDOCK_KFD", (folder() / "kfd").c_str(), 1);
  fs::remove_all(folder() / "code");
  fs::create_directory_symlink(CODE, folder() / "code");
  const std::string kfd = std::string(SOFTGPU_KFD) + " " + (folder() / "kfd").string();
  ASSERT_EQ(std::system(kfd.c_str()), 0);
}

// Returns whether the code folder has an image for the architecture.
bool has_image(const std::string& arch) {
  for (const fs::directory_entry& entry : fs::directory_iterator(CODE)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path());
    const json content = json::parse(file, nullptr, false);
    if (content.is_object() && content.value("arch", "").starts_with(arch)) return true;
  }
  return false;
}

}  // namespace

void SoftGpu::SetUp() {
  static const int filled = [] {
    fs::create_directories(fs::path(CODE) / "lib");
    std::string command = SOFT_CODE;
    for (const opdock_test::TreePlugin& plugin : opdock_test::tree_plugins()) {
      if (plugin.has_kernels) command += " " PLUGINS "/" + plugin.name + ".so";
    }
    return std::system((command + " " + CODE + " >/dev/null").c_str());
  }();
  ASSERT_EQ(filled, 0);
  if (std::string(GetParam()) == "gfx1030" && !std::getenv("OPDOCK_TEST_NIGHTLY")) {
    GTEST_SKIP() << "for ./dev test --nightly: plugins are packed for gfx1030 then";
  }
  if (!has_image(GetParam())) {
    GTEST_SKIP() << "the plugins were packed without an image for " << GetParam();
  }
}

bool is_amd(const std::string& arch) {
  return arch.starts_with("gfx");
}

json gpus(const std::vector<std::string>& archs) {
  json list = json::array();
  for (const std::string& arch : archs) list.push_back({{"arch", arch}, {"memory", 1 << 21}});
  return list;
}

void gpu_child(const std::string& arch, const json& more, const std::function<void()>& body,
               const std::function<void()>& after) {
  json config = {{"cuda", 13000}, {"workers", 2}, {"gpus", gpus({arch})}};
  config.update(more);
  amd = is_amd(arch);
  in_child(
      amd ? "libamdhip64.so.6" : "libcuda.so.1", config,
      [&] {
        prepare_host();
        ASSERT_EQ(call(either("cuInit", "hipInit"), 0u), 0);
        ASSERT_EQ(use_device(0), 0);
        body();
      },
      after);
}

opdock::Device device(int index) {
  return {amd ? OPDOCK_ROCM : OPDOCK_CUDA, index};
}

int use_device(int index) {
  if (amd) return call("hipSetDevice", index);
  CUcontext context = nullptr;
  const int result = call("cuDevicePrimaryCtxRetain", &context, index);
  return result == 0 ? call("cuCtxSetCurrent", context) : result;
}

void* new_stream() {
  void* stream = nullptr;
  EXPECT_EQ(call(either("cuStreamCreate", "hipStreamCreateWithFlags"), &stream, kNonBlocking), 0);
  return stream;
}

void* new_memory(size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(call(either("cuMemAlloc_v2", "hipMalloc"), &memory, bytes), 0);
  return memory;
}

int to_device(void* to, const void* from, size_t bytes, void* stream) {
  if (amd) return call("hipMemcpyAsync", to, from, bytes, kToDevice, stream);
  return call("cuMemcpyHtoDAsync_v2", address(to), from, bytes, stream);
}

int to_host(void* to, const void* from, size_t bytes, void* stream) {
  const int result = amd ? call("hipMemcpyAsync", to, from, bytes, kToHost, stream)
                         : call("cuMemcpyDtoHAsync_v2", to, address(from), bytes, stream);
  return result == 0 ? synchronize(stream) : result;
}

int synchronize(void* stream) {
  return call(either("cuStreamSynchronize", "hipStreamSynchronize"), stream);
}

size_t available_memory() {
  size_t bytes = 0, total = 0;
  EXPECT_EQ(call(either("cuMemGetInfo_v2", "hipMemGetInfo"), &bytes, &total), 0);
  return bytes;
}

int query(void* stream) {
  return call(either("cuStreamQuery", "hipStreamQuery"), stream);
}

int hold(void* stream, Gate* gate) {
  return call(either("cuLaunchHostFunc", "hipLaunchHostFunc"), stream, &Gate::wait, gate->data());
}

void order(void* first, void* then) {
  void* event = nullptr;
  EXPECT_EQ(call(either("cuEventCreate", "hipEventCreateWithFlags"), &event, kNoTiming), 0);
  EXPECT_EQ(call(either("cuEventRecord", "hipEventRecord"), event, first), 0);
  EXPECT_EQ(call(either("cuStreamWaitEvent", "hipStreamWaitEvent"), then, event, 0u), 0);
  EXPECT_EQ(call(either("cuEventDestroy_v2", "hipEventDestroy"), event), 0);
}

int begin_capture(void* stream) {
  return call(either("cuStreamBeginCapture_v2", "hipStreamBeginCapture"), stream, 0);
}

void* end_capture(void* stream) {
  void *graph = nullptr, *ready = nullptr;
  EXPECT_EQ(call(either("cuStreamEndCapture", "hipStreamEndCapture"), stream, &graph), 0);
  EXPECT_EQ(call(either("cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"), &ready,
                 graph, 0ull),
            0);
  return ready;
}

int launch_graph(void* graph, void* stream) {
  return call(either("cuGraphLaunch", "hipGraphLaunch"), graph, stream);
}

opdock_call_options on(void* stream) {
  return {sizeof(opdock_call_options), 0, stream, nullptr, nullptr, 0, nullptr, nullptr, nullptr};
}

}  // namespace softgpu_ops
