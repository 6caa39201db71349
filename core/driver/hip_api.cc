// SPDX-License-Identifier: Apache-2.0
#include "driver/hip_api.h"

#include <optional>

#include "driver/api_library.h"
#include "driver/errors.h"
#include "driver/hip_library.h"
#include "opdock/types.hpp"

namespace opdock::hip {
namespace {

ApiLibrary<Api>& library = *new ApiLibrary<Api>;

void fill(ApiSymbols* symbols, Api* api) {
  symbols->need("hipInit", &api->hipInit);
  symbols->need("hipGetErrorName", &api->hipGetErrorName);
  symbols->need("hipGetErrorString", &api->hipGetErrorString);
  symbols->need("hipGetLastError", &api->hipGetLastError);
  symbols->need("hipGetDeviceCount", &api->hipGetDeviceCount);
  symbols->need("hipGetDevice", &api->hipGetDevice);
  symbols->need("hipSetDevice", &api->hipSetDevice);
  symbols->need("hipDeviceGetAttribute", &api->hipDeviceGetAttribute);
  symbols->need("hipDeviceTotalMem", &api->hipDeviceTotalMem);
  symbols->need("hipStreamIsCapturing", &api->hipStreamIsCapturing);
  symbols->need("hipStreamSynchronize", &api->hipStreamSynchronize);
  symbols->need("hipModuleLoadData", &api->hipModuleLoadData);
  symbols->need("hipModuleGetFunction", &api->hipModuleGetFunction);
  symbols->need("hipModuleLaunchKernel", &api->hipModuleLaunchKernel);
  symbols->need("hipMalloc", &api->hipMalloc);
  symbols->need("hipFree", &api->hipFree);
  if (!symbols->get("hipGetDevicePropertiesR0600", &api->hipGetDevicePropertiesR0600)) {
    symbols->need("hipGetDeviceProperties", &api->hipGetDeviceProperties);
  }
  symbols->get("hipStreamGetDevice", &api->hipStreamGetDevice);
  symbols->get("hipModuleLaunchCooperativeKernel", &api->hipModuleLaunchCooperativeKernel);
  symbols->get("hipMallocAsync", &api->hipMallocAsync);
  symbols->get("hipFreeAsync", &api->hipFreeAsync);
}

ErrorMeaning meaning_of(Result result) {
  if (const std::optional<ErrorMeaning> common = common_meaning(result)) return *common;
  if (loses_device(result)) {
    return {OPDOCK_DEVICE_LOST,
            "a kernel that ran before has failed; end this process, and look for it with "
            "AMD_SERIALIZE_KERNEL=3 or rocgdb"};
  }
  switch (result) {
    case 9:
      return {OPDOCK_UNSUPPORTED,
              "launch fewer threads: HIP takes below 2^32 in each dimension, and 1024 per block"};
    case 35:
      return {OPDOCK_DEVICE_ERROR, "upgrade the amdgpu kernel driver"};
    case 100:
      return {OPDOCK_DEVICE_ERROR,
              "check that a GPU is here, /dev/kfd may be opened, and ROCR_VISIBLE_DEVICES and "
              "HIP_VISIBLE_DEVICES show it"};
    case 98:   // hipErrorInvalidDeviceFunction
    case 200:  // hipErrorInvalidImage
    case 209:  // hipErrorNoBinaryForGpu
    case 218:  // hipErrorInvalidKernelFile
    case 302:  // hipErrorSharedObjectSymbolNotFound: an unresolved symbol in the code object
    case 303:
      return {OPDOCK_INCOMPATIBLE, "build the plugin with this GPU's architecture"};
    case 801:
      return {OPDOCK_UNSUPPORTED, "upgrade ROCm, or do without"};
    default:
      return {OPDOCK_DEVICE_ERROR, "see the HIP reference for this error"};
  }
}

}  // namespace

Status open_api(const Api** out) {
  const auto too_old = [](const std::string& missing) {
    return "the HIP runtime is older than HIP 5.2: libamdhip64 has no " + missing +
           ". Upgrade ROCm";
  };
  return library.get(open_library, fill, too_old, out);
}

void* find_symbol(const char* name) {
  return library.symbol(name);
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

Status status_of(const Api& api, Result result, const char* function) {
  if (result == kSuccess) return {};
  api.hipGetLastError();
  const char* name = api.hipGetErrorName(result);
  const char* text = api.hipGetErrorString(result);
  return describe_error(function, result, name, text, meaning_of(result));
}

}  // namespace opdock::hip
