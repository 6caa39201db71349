// Implements the Driver interface with AMD's HIP runtime.
// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "driver/errors.h"
#include "driver/gpu_driver.h"
#include "driver/hip_api.h"
#include "driver/kernel_metadata.h"
#include "facts/arch.h"

namespace opdock {
namespace hip {
namespace {

// The object that a FunctionHandle points to.
struct LoadedKernel {
  Function function = nullptr;
  const KernelMetadata* metadata = nullptr;  // NULL if unknown
  uint32_t static_shared = 0;
  uint32_t max_shared = 0;  // per block, static and dynamic
};

// The object that a ModuleHandle points to.
struct LoadedImage {
  Module module = nullptr;
  int index = 0;
  std::map<std::string, KernelMetadata> metadata;  // by kernel name
  std::mutex mutex;
  std::deque<LoadedKernel> kernels;
};

using Gpu = GpuEntry;

// enter() sets *previous to this if the right device was already current, else to the previous
// device's index + 1.
void* const kUnchanged = nullptr;

class HipDriver : public GpuDriver<Gpu> {
 public:
  explicit HipDriver(const Api* api) : GpuDriver("rocm", "the HIP runtime"), api_(*api) {}

  Backend backend() const override { return Backend::kRocm; }

  Status enter(int index, void* stream, void** previous) override {
    *previous = kUnchanged;
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (!done.ok()) return done;
    if (is_handle(stream) && api_.hipStreamGetDevice != nullptr) {
      done = check_stream(index, stream);
      if (!done.ok()) return done;
    }
    int current = 0;
    Result result = api_.hipGetDevice(&current);
    if (result != kSuccess) return status_of(api_, result, "hipGetDevice");
    if (current == index) return {};
    result = api_.hipSetDevice(index);
    if (result != kSuccess) return status_of(api_, result, "hipSetDevice");
    *previous = reinterpret_cast<void*>(static_cast<intptr_t>(current) + 1);
    return {};
  }

  void leave(void* previous) override {
    if (previous == kUnchanged) return;
    api_.hipSetDevice(static_cast<int>(reinterpret_cast<intptr_t>(previous) - 1));
  }

  Status load(int index, std::span<const uint8_t> image, ModuleHandle* out) override {
    auto loaded = std::make_unique<LoadedImage>();
    loaded->index = index;
    loaded->metadata = read_kernel_metadata(image);
    const Result result = api_.hipModuleLoadData(&loaded->module, image.data());
    if (result != kSuccess) return status_of(api_, result, "hipModuleLoadData");
    *out = loaded.release();  // the image stays loaded
    return {};
  }

  Status find(ModuleHandle module, const char* name, FunctionHandle* out) override {
    LoadedImage& image = *static_cast<LoadedImage*>(module);
    Gpu* gpu = nullptr;
    Status done = find_gpu(image.index, &gpu);
    if (!done.ok()) return done;
    Function function = nullptr;
    const Result result = api_.hipModuleGetFunction(&function, image.module, name);
    if (result != kSuccess) return status_of(api_, result, "hipModuleGetFunction");
    const auto metadata = image.metadata.find(name);
    const std::lock_guard lock(image.mutex);
    LoadedKernel& kernel = image.kernels.emplace_back();
    kernel.function = function;
    kernel.max_shared = gpu->facts.max_shared_bytes;
    if (metadata != image.metadata.end()) {
      kernel.metadata = &metadata->second;
      kernel.static_shared = metadata->second.static_shared;
    }
    *out = &kernel;
    return {};
  }

  const std::vector<uint32_t>* params(FunctionHandle function) override {
    const KernelMetadata* const metadata = static_cast<LoadedKernel*>(function)->metadata;
    return metadata == nullptr ? nullptr : &metadata->params;
  }

  Status launch(FunctionHandle function, void* stream, const opdock_launch& how) override {
    const LoadedKernel& kernel = *static_cast<LoadedKernel*>(function);
    if (kernel.metadata != nullptr && how.num_args != kernel.metadata->params.size()) {
      return wrong_argument_count(how.num_args, kernel.metadata->params.size());
    }
    if (how.shared_bytes != 0 &&
        uint64_t{how.shared_bytes} + kernel.static_shared > kernel.max_shared) {
      return too_much_shared_memory(how.shared_bytes, kernel.max_shared, kernel.static_shared);
    }
    if (how.cluster[0] > 1 || how.cluster[1] > 1 || how.cluster[2] > 1) {
      return {OPDOCK_UNSUPPORTED,
              "launch(): found clusters of blocks, wanted none, as AMD's GPUs have none; launch "
              "without them"};
    }
    // OPDOCK_LAUNCH_PROGRAMMATIC is ignored: it allows a kernel to begin early, and beginning after
    // the previous kernel is also correct.
    void** args = const_cast<void**>(how.args);
    if ((how.flags & OPDOCK_LAUNCH_COOPERATIVE) != 0) {
      if (api_.hipModuleLaunchCooperativeKernel == nullptr) {
        return {OPDOCK_UNSUPPORTED,
                "launch(): found a HIP runtime without hipModuleLaunchCooperativeKernel, wanted "
                "ROCm 5.5 for cooperative launches; upgrade it"};
      }
      const Result result = api_.hipModuleLaunchCooperativeKernel(
          kernel.function, how.grid[0], how.grid[1], how.grid[2], how.block[0], how.block[1],
          how.block[2], how.shared_bytes, stream, args);
      return status_of(api_, result, "hipModuleLaunchCooperativeKernel");
    }
    const Result result = api_.hipModuleLaunchKernel(
        kernel.function, how.grid[0], how.grid[1], how.grid[2], how.block[0], how.block[1],
        how.block[2], how.shared_bytes, stream, args, nullptr);
    return result == kSuccess ? Status{} : status_of(api_, result, "hipModuleLaunchKernel");
  }

  Status synchronize(void* stream) override {
    return status_of(api_, api_.hipStreamSynchronize(stream), "hipStreamSynchronize");
  }

  void* symbol(const char* name) override { return find_symbol(name); }

 private:
  Status allocate_impl(const Gpu& gpu, void* stream, uint64_t bytes, void** out) override {
    const Result result =
        gpu.has_pools ? api_.hipMallocAsync(out, bytes, stream) : api_.hipMalloc(out, bytes);
    return status_of(api_, result, gpu.has_pools ? "hipMallocAsync" : "hipMalloc");
  }

  Status free_impl(const Gpu& gpu, void* stream, void* memory) override {
    const Result result = gpu.has_pools ? api_.hipFreeAsync(memory, stream) : api_.hipFree(memory);
    return status_of(api_, result, gpu.has_pools ? "hipFreeAsync" : "hipFree");
  }

  Status ask_capturing(void* stream, int* capturing) override {
    return status_of(api_, api_.hipStreamIsCapturing(stream, capturing), "hipStreamIsCapturing");
  }

  // A kernel is loaded on one device, so a launch on another device's stream would not find it.
  Status check_stream(int index, Stream stream) {
    int owner = 0;
    const Result result = api_.hipStreamGetDevice(stream, &owner);
    if (result != kSuccess) return status_of(api_, result, "hipStreamGetDevice");
    if (owner == index) return {};
    const std::string wanted = "rocm:" + std::to_string(index);
    return {OPDOCK_INVALID_ARGUMENT, "found a stream of rocm:" + std::to_string(owner) +
                                         ", wanted one of " + wanted +
                                         ", where the arguments are; pass one of that device"};
  }

  Status query_device(int index, Gpu* gpu) override {
    Status done = gpus_.initialise([this] { return status_of(api_, api_.hipInit(0), "hipInit"); });
    if (!done.ok()) return done;
    Result result = kSuccess;
    auto attribute = [&](Attribute which) {
      int value = 0;
      const Result got = api_.hipDeviceGetAttribute(&value, which, index);
      if (got != kSuccess && result == kSuccess) result = got;
      return static_cast<uint32_t>(value < 0 ? 0 : value);
    };
    opdock_device_facts& facts = gpu->facts;
    facts.struct_size = sizeof facts;
    facts.type = OPDOCK_ROCM;
    facts.warp_size = attribute(kWarpSize);
    facts.multiprocessors = attribute(kMultiprocessors);
    facts.max_threads_per_block = attribute(kMaxThreadsPerBlock);
    facts.max_shared_bytes = attribute(kMaxSharedPerBlock);
    facts.l2_bytes = attribute(kL2Bytes);
    if (result != kSuccess) return status_of(api_, result, "hipDeviceGetAttribute");
    size_t memory = 0;
    result = api_.hipDeviceTotalMem(&memory, index);
    if (result != kSuccess) return status_of(api_, result, "hipDeviceTotalMem");
    facts.memory_bytes = memory;
    gpu->arch = target_id(api_, index, &result);
    if (result != kSuccess) return status_of(api_, result, "hipGetDeviceProperties");
    const std::optional<GfxArch> arch = parse_gfx_arch(gpu->arch);
    const std::optional<GfxVersion> version =
        arch ? gfx_version(arch->processor) : std::optional<GfxVersion>();
    if (!version) {
      return {OPDOCK_DEVICE_ERROR, "found the architecture \"" + gpu->arch +
                                       "\", wanted one such as gfx90a; report it to Opdock"};
    }
    facts.arch_major = version->major;
    facts.arch_minor = version->minor;
    int pools = 0;  // libraries that do not know the attribute return an error
    gpu->has_pools = api_.hipMallocAsync != nullptr && api_.hipFreeAsync != nullptr &&
                     api_.hipDeviceGetAttribute(&pools, kMemoryPoolsSupported, index) == kSuccess &&
                     pools != 0;
    if (!gpu->has_pools) api_.hipGetLastError();
    return {};
  }

  const Api& api_;
};

}  // namespace
}  // namespace hip

Status hip_driver(Driver** out) {
  *out = nullptr;
  const hip::Api* api = nullptr;
  Status opened = hip::open_api(&api);
  if (!opened.ok()) return opened;
  const NoFork no_fork;
  static hip::HipDriver* driver = new hip::HipDriver(api);  // used until the process ends
  *out = driver;
  return {};
}

}  // namespace opdock
