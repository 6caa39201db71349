// Implements the Driver interface with the CUDA driver.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "driver/cuda_api.h"
#include "driver/cuda_launch.h"
#include "driver/errors.h"
#include "driver/gpu_driver.h"

namespace opdock {
namespace cuda {
namespace {

// The object that a ModuleHandle points to.
struct LoadedImage {
  Library library = nullptr;  // if the driver has libraries, else `module` is set
  Module module = nullptr;
  int index = 0;
  std::mutex mutex;
  std::deque<LoadedKernel> kernels;
};

struct Gpu : GpuEntry {
  Device device = 0;
  std::atomic<Context> primary{nullptr};
};

// enter() sets *previous to this if the right context was already current.
char unchanged_mark;
void* const kUnchanged = &unchanged_mark;

class CudaDriver : public GpuDriver<Gpu> {
 public:
  explicit CudaDriver(const Api* api) : GpuDriver("cuda", "the CUDA driver"), api_(*api) {}

  Backend backend() const override { return Backend::kCuda; }

  Status enter(int index, void* stream, void** previous) override {
    *previous = kUnchanged;
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (!done.ok()) return done;
    Context current = nullptr;
    Result result = api_.cuCtxGetCurrent(&current);
    if (result != kSuccess) return status_of(api_, result, "cuCtxGetCurrent");
    Context wanted = nullptr;
    if (is_handle(stream)) {
      // A stream of a green context has no CUcontext of its own: use the primary context.
      result = api_.cuStreamGetCtx(stream, &wanted);
      if (result == kNotSupported) {
        wanted = nullptr;
      } else if (result != kSuccess) {
        return status_of(api_, result, "cuStreamGetCtx");
      }
    }
    if (wanted == nullptr) {
      wanted = gpu->primary.load(std::memory_order_acquire);
      if (wanted == nullptr) {
        done = retain(gpu, &wanted);
        if (!done.ok()) return done;
      }
    }
    if (current == wanted) return {};
    result = api_.cuCtxPushCurrent(wanted);
    if (result != kSuccess) return status_of(api_, result, "cuCtxPushCurrent");
    *previous = nullptr;
    return {};
  }

  void leave(void* previous) override {
    if (previous == kUnchanged) return;
    Context popped = nullptr;
    api_.cuCtxPopCurrent(&popped);
  }

  Status load(int index, std::span<const uint8_t> image, ModuleHandle* out) override {
    auto loaded = std::make_unique<LoadedImage>();
    loaded->index = index;
    if (api_.has_libraries()) {
      const Result result = api_.cuLibraryLoadData(&loaded->library, image.data(), nullptr, nullptr,
                                                   0, nullptr, nullptr, 0);
      if (result != kSuccess) return status_of(api_, result, "cuLibraryLoadData");
    } else {
      // If PTX fails to compile, the driver's log says where.
      std::array<char, 4096> log{};
      int options[] = {5, 6};  // CU_JIT_ERROR_LOG_BUFFER, …_SIZE_BYTES
      void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
      const Result result =
          api_.cuModuleLoadDataEx(&loaded->module, image.data(), 2, options, values);
      if (result != kSuccess) {
        Status failed = status_of(api_, result, "cuModuleLoadDataEx");
        if (log[0] != '\0') failed.text.append("\n").append(log.data());
        return failed;
      }
    }
    *out = loaded.release();  // the image stays loaded
    return {};
  }

  Status find(ModuleHandle module, const char* name, FunctionHandle* out) override {
    LoadedImage& image = *static_cast<LoadedImage*>(module);
    Gpu* gpu = nullptr;
    Status done = find_gpu(image.index, &gpu);
    if (!done.ok()) return done;
    Function function = nullptr;
    Function in_context = nullptr;
    if (image.library != nullptr) {
      Result result = api_.cuLibraryGetKernel(&function, image.library, name);
      if (result != kSuccess) return status_of(api_, result, "cuLibraryGetKernel");
      result = api_.cuKernelGetFunction(&in_context, function);  // loads it into this context now
      if (result != kSuccess) return status_of(api_, result, "cuKernelGetFunction");
    } else {
      const Result result = api_.cuModuleGetFunction(&function, image.module, name);
      if (result != kSuccess) return status_of(api_, result, "cuModuleGetFunction");
      in_context = function;
    }
    // With lazy loading the first launch would load the kernel, which is forbidden during a
    // capture.
    if (api_.cuFuncLoad != nullptr) {
      const Result result = api_.cuFuncLoad(in_context);
      if (result != kSuccess) return status_of(api_, result, "cuFuncLoad");
    }
    Context context = nullptr;
    api_.cuCtxGetCurrent(&context);
    int static_shared = 0;
    const Result result = api_.cuFuncGetAttribute(&static_shared, kFunctionSharedBytes, in_context);
    if (result != kSuccess) return status_of(api_, result, "cuFuncGetAttribute");
    const uint32_t flags = allowed_flags(api_, in_context);
    std::lock_guard lock(image.mutex);
    LoadedKernel& kernel = image.kernels.emplace_back();
    kernel.function = function;
    kernel.is_kernel = image.library != nullptr;
    kernel.in_context = in_context;
    kernel.context = context;
    kernel.device = gpu->device;
    kernel.flags = flags;
    kernel.static_shared = static_cast<uint32_t>(static_shared);
    kernel.max_shared = gpu->facts.max_shared_bytes;
    kernel.shared_limit =
        kSharedWithoutAsking - std::min(kernel.static_shared, kSharedWithoutAsking);
    read_params(api_, in_context, &kernel);
    *out = &kernel;
    return {};
  }

  const std::vector<uint32_t>* params(FunctionHandle function) override {
    const LoadedKernel& kernel = *static_cast<LoadedKernel*>(function);
    return kernel.num_params == kUnknown ? nullptr : &kernel.param_sizes;
  }

  Status launch(FunctionHandle function, void* stream, const opdock_launch& how) override {
    LoadedKernel& kernel = *static_cast<LoadedKernel*>(function);
    if (kernel.num_params != kUnknown && how.num_args != kernel.num_params) {
      return wrong_argument_count(how.num_args, kernel.num_params);
    }
    if (how.shared_bytes > kernel.shared_limit.load(std::memory_order_relaxed)) {
      Status raised = raise_shared(api_, &kernel, how.shared_bytes);
      if (!raised.ok()) return raised;
    }
    // The stream's context is current (OPDOCK-H-3).
    Context current = nullptr;
    const bool is_same =
        kernel.is_kernel && api_.cuCtxGetCurrent(&current) == kSuccess && current == kernel.context;
    const Function launched = is_same ? kernel.in_context : kernel.function;
    if ((how.flags & kernel.flags) == 0 && !has_clusters(how)) {
      const Result result = api_.cuLaunchKernel(
          launched, how.grid[0], how.grid[1], how.grid[2], how.block[0], how.block[1], how.block[2],
          how.shared_bytes, stream, const_cast<void**>(how.args), nullptr);
      return result == kSuccess ? Status{} : status_of(api_, result, "cuLaunchKernel");
    }
    return launch_with_attributes(api_, launched, stream, how, how.flags & kernel.flags);
  }

  Status synchronize(void* stream) override {
    return status_of(api_, api_.cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  void* symbol(const char* name) override { return find_symbol(api_, name); }

 private:
  Status allocate_impl(const Gpu& gpu, void* stream, uint64_t bytes, void** out) override {
    Pointer memory = 0;
    const Result result = gpu.has_pools ? api_.cuMemAllocAsync(&memory, bytes, stream)
                                        : api_.cuMemAlloc(&memory, bytes);
    if (result == kSuccess) *out = reinterpret_cast<void*>(memory);
    return status_of(api_, result, gpu.has_pools ? "cuMemAllocAsync" : "cuMemAlloc");
  }

  Status free_impl(const Gpu& gpu, void* stream, void* memory) override {
    const Pointer pointer = reinterpret_cast<Pointer>(memory);
    const Result result =
        gpu.has_pools ? api_.cuMemFreeAsync(pointer, stream) : api_.cuMemFree(pointer);
    return status_of(api_, result, gpu.has_pools ? "cuMemFreeAsync" : "cuMemFree");
  }

  Status ask_capturing(void* stream, int* capturing) override {
    return status_of(api_, api_.cuStreamIsCapturing(stream, capturing), "cuStreamIsCapturing");
  }

  Status query_device(int index, Gpu* gpu) override {
    Status done = gpus_.initialise([this] { return status_of(api_, api_.cuInit(0), "cuInit"); });
    if (!done.ok()) return done;
    Result result = api_.cuDeviceGet(&gpu->device, index);
    if (result != kSuccess) return status_of(api_, result, "cuDeviceGet");
    auto attribute = [&](Attribute which) {
      int value = 0;
      const Result got = api_.cuDeviceGetAttribute(&value, which, gpu->device);
      if (got != kSuccess && result == kSuccess) result = got;
      return static_cast<uint32_t>(value < 0 ? 0 : value);
    };
    opdock_device_facts& facts = gpu->facts;
    facts.struct_size = sizeof facts;
    facts.type = OPDOCK_CUDA;
    facts.arch_major = attribute(kCapabilityMajor);
    facts.arch_minor = attribute(kCapabilityMinor);
    facts.warp_size = attribute(kWarpSize);
    facts.multiprocessors = attribute(kMultiprocessors);
    facts.max_threads_per_block = attribute(kMaxThreadsPerBlock);
    facts.max_shared_bytes = attribute(kMaxSharedPerBlockOptin);
    if (facts.max_shared_bytes == 0) facts.max_shared_bytes = attribute(kMaxSharedPerBlock);
    facts.l2_bytes = attribute(kL2Bytes);
    if (result != kSuccess) return status_of(api_, result, "cuDeviceGetAttribute");
    int pools = 0;  // drivers before 11.2 do not know the attribute
    gpu->has_pools =
        api_.cuMemAllocAsync != nullptr && api_.cuMemFreeAsync != nullptr &&
        api_.cuDeviceGetAttribute(&pools, kMemoryPoolsSupported, gpu->device) == kSuccess &&
        pools != 0;
    size_t memory = 0;
    result = api_.cuDeviceTotalMem(&memory, gpu->device);
    if (result != kSuccess) return status_of(api_, result, "cuDeviceTotalMem");
    facts.memory_bytes = memory;
    gpu->arch = "sm_" + std::to_string(facts.arch_major) + std::to_string(facts.arch_minor);
    return {};
  }

  // Retains the device's primary context until the process ends.
  Status retain(Gpu* gpu, Context* out) {
    std::lock_guard lock(gpu->mutex);
    *out = gpu->primary.load(std::memory_order_relaxed);
    if (*out != nullptr) return {};
    const Result result = api_.cuDevicePrimaryCtxRetain(out, gpu->device);
    if (result != kSuccess) return status_of(api_, result, "cuDevicePrimaryCtxRetain");
    gpu->primary.store(*out, std::memory_order_release);
    return {};
  }

  const Api& api_;
};

}  // namespace
}  // namespace cuda

Status cuda_driver(Driver** out) {
  *out = nullptr;
  const cuda::Api* api = nullptr;
  Status opened = cuda::open_api(&api);
  if (!opened.ok()) return opened;
  const NoFork no_fork;
  static cuda::CudaDriver* driver = new cuda::CudaDriver(api);  // used until the process ends
  *out = driver;
  return {};
}

}  // namespace opdock
