// SPDX-License-Identifier: Apache-2.0
#include "driver/cuda_api.h"

#include <dlfcn.h>

#include <optional>

#include "driver/api_library.h"
#include "driver/errors.h"
#include "opdock/types.hpp"

namespace opdock::cuda {
namespace {

ApiLibrary<Api>& library = *new ApiLibrary<Api>;

void fill(ApiSymbols* symbols, Api* api) {
  symbols->need("cuInit", &api->cuInit);
  symbols->need("cuDriverGetVersion", &api->cuDriverGetVersion);
  symbols->need("cuGetErrorName", &api->cuGetErrorName);
  symbols->need("cuGetErrorString", &api->cuGetErrorString);
  symbols->need("cuDeviceGetCount", &api->cuDeviceGetCount);
  symbols->need("cuDeviceGet", &api->cuDeviceGet);
  symbols->need("cuDeviceGetAttribute", &api->cuDeviceGetAttribute);
  symbols->need("cuDeviceTotalMem_v2", &api->cuDeviceTotalMem);
  symbols->need("cuDevicePrimaryCtxRetain", &api->cuDevicePrimaryCtxRetain);
  symbols->need("cuCtxGetCurrent", &api->cuCtxGetCurrent);
  symbols->need("cuCtxPushCurrent_v2", &api->cuCtxPushCurrent);
  symbols->need("cuCtxPopCurrent_v2", &api->cuCtxPopCurrent);
  symbols->need("cuStreamGetCtx", &api->cuStreamGetCtx);
  symbols->need("cuStreamIsCapturing", &api->cuStreamIsCapturing);
  symbols->need("cuStreamSynchronize", &api->cuStreamSynchronize);
  symbols->need("cuModuleLoadDataEx", &api->cuModuleLoadDataEx);
  symbols->need("cuModuleGetFunction", &api->cuModuleGetFunction);
  symbols->need("cuFuncGetAttribute", &api->cuFuncGetAttribute);
  symbols->need("cuFuncSetAttribute", &api->cuFuncSetAttribute);
  symbols->need("cuLaunchKernel", &api->cuLaunchKernel);
  symbols->need("cuMemAlloc_v2", &api->cuMemAlloc);
  symbols->need("cuMemFree_v2", &api->cuMemFree);
  symbols->get("cuLaunchKernelEx", &api->cuLaunchKernelEx);
  symbols->get("cuMemAllocAsync", &api->cuMemAllocAsync);
  symbols->get("cuMemFreeAsync", &api->cuMemFreeAsync);
  symbols->get("cuLibraryLoadData", &api->cuLibraryLoadData);
  symbols->get("cuLibraryGetKernel", &api->cuLibraryGetKernel);
  symbols->get("cuKernelGetFunction", &api->cuKernelGetFunction);
  symbols->get("cuKernelSetAttribute", &api->cuKernelSetAttribute);
  symbols->get("cuFuncLoad", &api->cuFuncLoad);
  symbols->get("cuFuncGetParamInfo", &api->cuFuncGetParamInfo);
  symbols->get("cuGetProcAddress_v2", &api->cuGetProcAddress);
}

ErrorMeaning meaning_of(Result result) {
  if (const std::optional<ErrorMeaning> common = common_meaning(result)) return *common;
  if (loses_device(result)) {
    return {OPDOCK_DEVICE_LOST,
            "a kernel that ran before has failed; end this process, and look for it with "
            "compute-sanitizer"};
  }
  switch (result) {
    case 100:
      return {OPDOCK_DEVICE_ERROR, "check that a GPU is here and CUDA_VISIBLE_DEVICES shows it"};
    case 200:
    case 209:
    case 218:
    case 221:
    case 222:
      return {OPDOCK_INCOMPATIBLE,
              "build the plugin with this GPU's architecture and a toolkit that the driver knows"};
    default:
      return {OPDOCK_DEVICE_ERROR, "see the CUDA driver reference for this error"};
  }
}

}  // namespace

Status open_api(const Api** out) {
  const auto open = [](void** opened) -> Status {
    *opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (*opened != nullptr) return {};
    const char* error = dlerror();
    const std::string text = error != nullptr ? error : "libcuda.so.1: dlopen";
    const bool is_absent = text.find("No such file") != text.npos;
    return {OPDOCK_INCOMPATIBLE,
            "no CUDA driver: " + (is_absent ? "libcuda.so.1 was not found" : text) +
                ". Install the NVIDIA driver"};
  };
  const auto too_old = [](const std::string& missing) {
    return "the CUDA driver is older than CUDA 11: libcuda.so.1 has no " + missing +
           ". Upgrade the NVIDIA driver";
  };
  return library.get(open, fill, too_old, out);
}

void* find_symbol(const Api& api, const char* name) {
  constexpr int kDeclared = 12000;
  void* found = nullptr;
  if (api.cuGetProcAddress != nullptr &&
      api.cuGetProcAddress(name, &found, kDeclared, 0, nullptr) == kSuccess && found != nullptr) {
    return found;
  }
  return library.symbol(name);
}

Status status_of(const Api& api, Result result, const char* function) {
  if (result == kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(result, &name) != kSuccess) name = nullptr;
  if (api.cuGetErrorString(result, &text) != kSuccess) text = nullptr;
  return describe_error(function, result, name, text, meaning_of(result));
}

}  // namespace opdock::cuda
