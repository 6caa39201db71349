// SPDX-License-Identifier: Apache-2.0
#include "driver/cuda_api.h"

#include <dlfcn.h>

#include <mutex>

namespace opdock::cuda {
namespace {

struct Opened {
  std::mutex mutex;
  bool tried = false;
  void* library = nullptr;
  Api api{};
  std::string problem;
};

Opened& opened() {
  static Opened* instance = new Opened;
  return *instance;
}

template <class F>
bool get(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

// The name of the first required function that is missing, or NULL.
const char* fill(void* library, Api* api) {
  const char* missing = nullptr;
  auto need = [&](const char* name, auto* out) {
    if (!get(library, name, out) && missing == nullptr) missing = name;
  };
  need("cuInit", &api->cuInit);
  need("cuDriverGetVersion", &api->cuDriverGetVersion);
  need("cuGetErrorName", &api->cuGetErrorName);
  need("cuGetErrorString", &api->cuGetErrorString);
  need("cuDeviceGetCount", &api->cuDeviceGetCount);
  need("cuDeviceGet", &api->cuDeviceGet);
  need("cuDeviceGetAttribute", &api->cuDeviceGetAttribute);
  need("cuDeviceTotalMem_v2", &api->cuDeviceTotalMem);
  need("cuDevicePrimaryCtxRetain", &api->cuDevicePrimaryCtxRetain);
  need("cuCtxGetCurrent", &api->cuCtxGetCurrent);
  need("cuCtxPushCurrent_v2", &api->cuCtxPushCurrent);
  need("cuCtxPopCurrent_v2", &api->cuCtxPopCurrent);
  need("cuStreamGetCtx", &api->cuStreamGetCtx);
  need("cuStreamIsCapturing", &api->cuStreamIsCapturing);
  need("cuStreamSynchronize", &api->cuStreamSynchronize);
  need("cuModuleLoadDataEx", &api->cuModuleLoadDataEx);
  need("cuModuleGetFunction", &api->cuModuleGetFunction);
  need("cuFuncSetAttribute", &api->cuFuncSetAttribute);
  need("cuLaunchKernel", &api->cuLaunchKernel);
  need("cuMemAlloc_v2", &api->cuMemAlloc);
  need("cuMemFree_v2", &api->cuMemFree);
  get(library, "cuLaunchKernelEx", &api->cuLaunchKernelEx);
  get(library, "cuMemAllocAsync", &api->cuMemAllocAsync);
  get(library, "cuMemFreeAsync", &api->cuMemFreeAsync);
  get(library, "cuLibraryLoadData", &api->cuLibraryLoadData);
  get(library, "cuLibraryGetKernel", &api->cuLibraryGetKernel);
  get(library, "cuKernelGetFunction", &api->cuKernelGetFunction);
  get(library, "cuKernelSetAttribute", &api->cuKernelSetAttribute);
  get(library, "cuFuncLoad", &api->cuFuncLoad);
  get(library, "cuFuncGetParamInfo", &api->cuFuncGetParamInfo);
  get(library, "cuGetProcAddress_v2", &api->cuGetProcAddress);
  return missing;
}

// Errors after which the driver refuses everything in this process (the reference says of each
// that the process must be terminated and relaunched).
bool is_sticky(Result result) {
  switch (result) {
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // TENSOR_MEMORY_LEAK
      return true;
    default:
      return false;
  }
}

struct Meaning {
  opdock_status status;
  const char* advice;
};

Meaning meaning_of(Result result) {
  if (is_sticky(result)) {
    return {OPDOCK_DEVICE_LOST,
            "a kernel that ran before has failed; end this process, and look for it with "
            "compute-sanitizer"};
  }
  switch (result) {
    case kOutOfMemory:
      return {OPDOCK_OUT_OF_MEMORY, "free device memory, or use less"};
    case 3:
      return {OPDOCK_DEVICE_ERROR, "start GPU work after fork, or start processes by spawn"};
    case 100:
      return {OPDOCK_DEVICE_ERROR, "check that a GPU is here and CUDA_VISIBLE_DEVICES shows it"};
    case 101:
      return {OPDOCK_DEVICE_ERROR, "use a device index below the number of visible GPUs"};
    case 200:
    case 209:
    case 218:
    case 221:
    case 222:
      return {OPDOCK_INCOMPATIBLE,
              "build the plugin with this GPU's architecture and a toolkit that the driver knows"};
    case kNotFound:
      return {OPDOCK_NOT_FOUND, "check the name"};
    case 701:
      return {OPDOCK_UNSUPPORTED, "launch fewer threads per block or less shared memory"};
    case 720:
      return {OPDOCK_UNSUPPORTED, "launch fewer blocks: all must fit the GPU at once"};
    case 900:
    case 901:
    case 904:
    case 905:
    case 906:
    case 907:
    case 908:
      return {OPDOCK_DEVICE_ERROR, "prepare the op before the stream is captured"};
    default:
      return {OPDOCK_DEVICE_ERROR, "see the CUDA driver reference for this error"};
  }
}

}  // namespace

const Api* open_api(std::string* problem) {
  Opened& state = opened();
  std::lock_guard lock(state.mutex);
  if (!state.tried) {
    state.tried = true;
    state.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (state.library == nullptr) {
      const char* why = dlerror();
      state.problem = std::string("found no CUDA driver (") + (why != nullptr ? why : "dlopen") +
                      "), wanted libcuda.so.1; install the NVIDIA driver";
    } else if (const char* missing = fill(state.library, &state.api)) {
      state.problem = std::string("found a libcuda.so.1 without ") + missing +
                      ", wanted a driver of CUDA 11 or newer; upgrade the NVIDIA driver";
    }
  }
  if (state.problem.empty()) return &state.api;
  if (problem != nullptr) *problem = state.problem;
  return nullptr;
}

void* find_symbol(const Api& api, const char* name) {
  constexpr int kDeclared = 12000;
  void* found = nullptr;
  if (api.cuGetProcAddress != nullptr &&
      api.cuGetProcAddress(name, &found, kDeclared, 0, nullptr) == kSuccess && found != nullptr) {
    return found;
  }
  return dlsym(opened().library, name);
}

DriverStatus status_of(const Api& api, Result result, const char* function) {
  if (result == kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(result, &name) != kSuccess || name == nullptr) name = "an unknown error";
  if (api.cuGetErrorString(result, &text) != kSuccess || text == nullptr) text = "no description";
  const Meaning meaning = meaning_of(result);
  std::string line(function);
  line.append(": found ").append(name).append(" (").append(std::to_string(result)).append("), ");
  line.append(text).append("; ").append(meaning.advice);
  return {meaning.status, std::move(line)};
}

}  // namespace opdock::cuda
