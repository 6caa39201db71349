// SPDX-License-Identifier: Apache-2.0
#include "driver/hip_api.h"

#include <dlfcn.h>

#include <mutex>

#include "driver/hip_library.h"

namespace opdock::hip {
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
  need("hipInit", &api->hipInit);
  need("hipGetErrorName", &api->hipGetErrorName);
  need("hipGetErrorString", &api->hipGetErrorString);
  need("hipGetLastError", &api->hipGetLastError);
  need("hipGetDeviceCount", &api->hipGetDeviceCount);
  need("hipGetDevice", &api->hipGetDevice);
  need("hipSetDevice", &api->hipSetDevice);
  need("hipDeviceGetAttribute", &api->hipDeviceGetAttribute);
  need("hipDeviceTotalMem", &api->hipDeviceTotalMem);
  need("hipStreamIsCapturing", &api->hipStreamIsCapturing);
  need("hipStreamSynchronize", &api->hipStreamSynchronize);
  need("hipModuleLoadData", &api->hipModuleLoadData);
  need("hipModuleGetFunction", &api->hipModuleGetFunction);
  need("hipModuleLaunchKernel", &api->hipModuleLaunchKernel);
  need("hipMalloc", &api->hipMalloc);
  need("hipFree", &api->hipFree);
  if (!get(library, "hipGetDevicePropertiesR0600", &api->hipGetDevicePropertiesR0600)) {
    need("hipGetDeviceProperties", &api->hipGetDeviceProperties);
  }
  get(library, "hipStreamGetDevice", &api->hipStreamGetDevice);
  get(library, "hipModuleLaunchCooperativeKernel", &api->hipModuleLaunchCooperativeKernel);
  get(library, "hipMallocAsync", &api->hipMallocAsync);
  get(library, "hipFreeAsync", &api->hipFreeAsync);
  return missing;
}

// Errors after which the device refuses everything in this process.
bool is_sticky(Result result) {
  switch (result) {
    case 53:   // hipErrorPriorLaunchFailure
    case 214:  // hipErrorECCNotCorrectable
    case 700:  // hipErrorIllegalAddress
    case 702:  // hipErrorLaunchTimeOut
    case 710:  // hipErrorAssert
    case 716:  // misaligned address, where a library reports it
    case 719:  // hipErrorLaunchFailure
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
            "AMD_SERIALIZE_KERNEL=3 or rocgdb"};
  }
  switch (result) {
    case 2:
      return {OPDOCK_OUT_OF_MEMORY, "free device memory, or use less"};
    case 3:
      return {OPDOCK_DEVICE_ERROR, "start GPU work after fork, or start processes by spawn"};
    case 9:
      return {OPDOCK_UNSUPPORTED,
              "launch fewer threads: HIP takes below 2^32 in each dimension, and 1024 per block"};
    case 35:
      return {OPDOCK_DEVICE_ERROR, "upgrade the amdgpu kernel driver"};
    case 100:
      return {OPDOCK_DEVICE_ERROR,
              "check that a GPU is here, /dev/kfd may be opened, and ROCR_VISIBLE_DEVICES and "
              "HIP_VISIBLE_DEVICES show it"};
    case 101:
      return {OPDOCK_DEVICE_ERROR, "use a device index below the number of visible GPUs"};
    case 98:   // hipErrorInvalidDeviceFunction
    case 200:  // hipErrorInvalidImage
    case 209:  // hipErrorNoBinaryForGpu
    case 218:  // hipErrorInvalidKernelFile
    case 302:  // hipErrorSharedObjectSymbolNotFound: an unresolved symbol in the code object
    case 303:
      return {OPDOCK_INCOMPATIBLE, "build the plugin with this GPU's architecture"};
    case 500:
      return {OPDOCK_NOT_FOUND, "check the name"};
    case 701:
      return {OPDOCK_UNSUPPORTED, "launch fewer threads per block or less shared memory"};
    case 720:
      return {OPDOCK_UNSUPPORTED, "launch fewer blocks: all must fit the GPU at once"};
    case 801:
      return {OPDOCK_UNSUPPORTED, "upgrade ROCm, or do without"};
    case 900:
    case 901:
    case 904:
    case 905:
    case 906:
    case 907:
    case 908:
      return {OPDOCK_DEVICE_ERROR, "prepare the op before the stream is captured"};
    default:
      return {OPDOCK_DEVICE_ERROR, "see the HIP reference for this error"};
  }
}

}  // namespace

const Api* open_api(std::string* problem) {
  Opened& state = opened();
  const std::lock_guard lock(state.mutex);
  if (!state.tried) {
    state.tried = true;
    state.library = open_library(&state.problem);
    const char* missing = state.library == nullptr ? nullptr : fill(state.library, &state.api);
    if (missing != nullptr) {
      state.problem = std::string("found a libamdhip64 without ") + missing +
                      ", wanted HIP 5.2 or newer; upgrade ROCm";
    }
  }
  if (state.problem.empty()) return &state.api;
  if (problem != nullptr) *problem = state.problem;
  return nullptr;
}

void* find_symbol(const char* name) {
  return dlsym(opened().library, name);
}

std::string target_id(const Api& api, int index, Result* result) {
  alignas(16) char properties[kPropertiesBytes] = {};
  const bool is_new = api.hipGetDevicePropertiesR0600 != nullptr;
  *result = is_new ? api.hipGetDevicePropertiesR0600(properties, index)
                   : api.hipGetDeviceProperties(properties, index);
  if (*result != kSuccess) return {};
  const char* text = properties + (is_new ? kTargetIdAt : kTargetIdAtBefore6);
  size_t size = 0;
  while (size < kTargetIdBytes && text[size] != '\0') ++size;
  return {text, size};
}

DriverStatus status_of(const Api& api, Result result, const char* function) {
  if (result == kSuccess) return {};
  api.hipGetLastError();
  const char* name = api.hipGetErrorName(result);
  const char* text = api.hipGetErrorString(result);
  const Meaning meaning = meaning_of(result);
  std::string line(function);
  line.append(": found ").append(name == nullptr ? "an unknown error" : name);
  line.append(" (").append(std::to_string(result)).append("), ");
  line.append(text == nullptr ? "no description" : text).append("; ").append(meaning.advice);
  return {meaning.status, std::move(line)};
}

}  // namespace opdock::hip
