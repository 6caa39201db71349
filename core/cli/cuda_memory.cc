// SPDX-License-Identifier: Apache-2.0
#include "cuda_memory.h"

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>

#include "fmt/format.h"

namespace opdock::cli {
namespace {

// A function of the CUDA driver: every one of these returns an int, 0 for success.
template <typename... Parameters>
void call(const char* name, Parameters... parameters) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    throw std::runtime_error(
        "found no libcuda.so.1; install the NVIDIA driver, or use "
        "--device cpu");
  }
  using Function = int (*)(Parameters...);
  const Function function = reinterpret_cast<Function>(dlsym(driver, name));
  if (function == nullptr) throw std::runtime_error(fmt::format("the driver has no {}", name));
  const int status = function(parameters...);
  if (status != 0) {
    throw std::runtime_error(
        fmt::format("{} failed with CUDA error {}; see nvidia-smi", name, status));
  }
}

using Address = unsigned long long;

}  // namespace

void cuda_open(int device) {
  call<unsigned>("cuInit", 0);
  int handle = 0;
  call<int*, int>("cuDeviceGet", &handle, device);
  void* context = nullptr;
  call<void**, int>("cuDevicePrimaryCtxRetain", &context, handle);
  call<void*>("cuCtxSetCurrent", context);
}

void* cuda_allocate(size_t bytes) {
  Address address = 0;
  if (bytes == 0) return nullptr;
  call<Address*, size_t>("cuMemAlloc_v2", &address, bytes);
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

void cuda_copy_in(void* device, const void* host, size_t bytes) {
  if (bytes == 0) return;
  call<Address, const void*, size_t>("cuMemcpyHtoD_v2", reinterpret_cast<uintptr_t>(device), host,
                                     bytes);
}

void cuda_copy_out(void* host, const void* device, size_t bytes) {
  if (bytes == 0) return;
  call<void*, Address, size_t>("cuMemcpyDtoH_v2", host, reinterpret_cast<uintptr_t>(device), bytes);
}

}  // namespace opdock::cli
