// cuGetProcAddress: finds functions by names without _v2, if a driver of the configured version has
// them.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <string_view>

#include "cuda.h"

using namespace softgpu;

namespace {

struct Introduced {
  std::string_view name;
  int cuda_version;
};

// Lists only functions newer than CUDA 11.0, the oldest driver that tests use.
constexpr Introduced kIntroduced[] = {
    {"cuMemAllocAsync", 11020},     {"cuMemFreeAsync", 11020},     {"cuGetProcAddress", 11030},
    {"cuDeviceGetUuid_v2", 11040},  {"cuLaunchKernelEx", 11060},   {"cuLibraryLoadData", 12000},
    {"cuLibraryUnload", 12000},     {"cuLibraryGetKernel", 12000}, {"cuLibraryGetModule", 12000},
    {"cuKernelGetFunction", 12000}, {"cuFuncGetParamInfo", 12040},
};

bool known(std::string_view name, int cuda_version) {
  for (const Introduced& function : kIntroduced) {
    if (function.name == name) return function.cuda_version <= cuda_version;
  }
  return true;
}

void* find(const std::string& name) {
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&find), &own);
  void* const library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* symbol = dlsym(library, (name + "_v2").c_str());
  if (!symbol) symbol = dlsym(library, name.c_str());
  dlclose(library);
  return symbol;
}

}  // namespace

SOFTGPU_API CUresult cuGetProcAddress_v2(const char* name, void** function, int cuda_version,
                                         uint64_t, int* status) {
  constexpr int kFound = 0, kNotFound = 1, kVersionTooLow = 2;
  if (const Failure* failure = strike("cuGetProcAddress_v2")) return failure->error;
  if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
  *function = known(name, config().cuda_version) ? find(name) : nullptr;
  const bool too_low = *function && !known(name, cuda_version);
  if (too_low) *function = nullptr;
  if (status) *status = *function ? kFound : too_low ? kVersionTooLow : kNotFound;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SOFTGPU_API CUresult cuGetProcAddress(const char* name, void** function, int cuda_version,
                                      uint64_t flags) {
  return cuGetProcAddress_v2(name, function, cuda_version, flags, nullptr);
}
