// SPDX-License-Identifier: Apache-2.0
#include "gpu_memory.h"

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "driver/hip_library.h"
#include "fmt/format.h"

namespace opdock::cli {
namespace {

// The driver of the device that gpu_open() was given.
struct Driver {
  void* library = nullptr;
  bool is_rocm = false;
};
Driver driver;

void* open_driver(bool is_rocm) {
  if (!is_rocm) {
    if (void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) return library;
    throw std::runtime_error(
        "found no libcuda.so.1; install the NVIDIA driver, or use --device cpu");
  }
  void* library = nullptr;
  const Status opened = hip::open_library(&library);
  if (!opened.ok()) throw std::runtime_error(opened.text + ", or use --device cpu");
  return library;
}

// Calls a function of the driver. Each of those used here returns an int, 0 for success.
template <typename... Parameters>
void call(const char* name, Parameters... parameters) {
  using Function = int (*)(Parameters...);
  const Function function = reinterpret_cast<Function>(dlsym(driver.library, name));
  if (function == nullptr) throw std::runtime_error(fmt::format("the driver has no {}", name));
  const int status = function(parameters...);
  if (status == 0) return;
  throw std::runtime_error(fmt::format("{} failed with {} error {}; see {}", name,
                                       driver.is_rocm ? "HIP" : "CUDA", status,
                                       driver.is_rocm ? "rocminfo" : "nvidia-smi"));
}

using Address = unsigned long long;

void open_cuda(int device) {
  call<unsigned>("cuInit", 0);
  int handle = 0;
  call<int*, int>("cuDeviceGet", &handle, device);
  void* context = nullptr;
  call<void**, int>("cuDevicePrimaryCtxRetain", &context, handle);
  call<void*>("cuCtxSetCurrent", context);
}

}  // namespace

void gpu_open(opdock_device device) {
  if (device.type == OPDOCK_CPU) return;
  driver.is_rocm = device.type == OPDOCK_ROCM;
  driver.library = open_driver(driver.is_rocm);
  if (driver.is_rocm) {
    call<int>("hipSetDevice", device.index);
  } else {
    open_cuda(device.index);
  }
}

void* gpu_allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  if (driver.is_rocm) {
    call<void**, size_t>("hipMalloc", &memory, bytes);
    return memory;
  }
  Address address = 0;
  call<Address*, size_t>("cuMemAlloc_v2", &address, bytes);
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

void gpu_copy_in(void* device, const void* host, size_t bytes) {
  if (bytes == 0) return;
  if (driver.is_rocm) return call<void*, const void*, size_t>("hipMemcpyHtoD", device, host, bytes);
  call<Address, const void*, size_t>("cuMemcpyHtoD_v2", reinterpret_cast<uintptr_t>(device), host,
                                     bytes);
}

void gpu_copy_out(void* host, const void* device, size_t bytes) {
  if (bytes == 0) return;
  if (driver.is_rocm) return call<void*, const void*, size_t>("hipMemcpyDtoH", host, device, bytes);
  call<void*, Address, size_t>("cuMemcpyDtoH_v2", host, reinterpret_cast<uintptr_t>(device), bytes);
}

}  // namespace opdock::cli
