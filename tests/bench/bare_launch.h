// Launches one empty kernel through the CUDA driver, with no other code around the launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

constexpr char kEmptyKernel[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n";

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// Holds the driver's functions and one empty kernel in device 0's primary context.
struct Cuda {
  std::string problem;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**) = nullptr;
  int (*synchronize)() = nullptr;
  int (*allocate)(uint64_t*, size_t) = nullptr;
  void* kernel = nullptr;

  // Launches one block of one thread on the default stream.
  void launch_empty() { launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); }

  Cuda() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      problem = "no CUDA driver: libcuda.so.1 is not here";
      return;
    }
    auto init = symbol<int (*)(unsigned)>(library, "cuInit");
    auto retain = symbol<int (*)(void**, int)>(library, "cuDevicePrimaryCtxRetain");
    auto make_current = symbol<int (*)(void*)>(library, "cuCtxSetCurrent");
    auto load = symbol<int (*)(void**, const void*)>(library, "cuModuleLoadData");
    auto get = symbol<int (*)(void**, void*, const char*)>(library, "cuModuleGetFunction");
    launch = symbol<decltype(launch)>(library, "cuLaunchKernel");
    synchronize = symbol<decltype(synchronize)>(library, "cuCtxSynchronize");
    allocate = symbol<decltype(allocate)>(library, "cuMemAlloc_v2");
    void *context = nullptr, *module = nullptr;
    int error = init(0);
    if (error == 0) error = retain(&context, 0);
    if (error == 0) error = make_current(context);
    if (error == 0) error = load(&module, kEmptyKernel);
    if (error == 0) error = get(&kernel, module, "empty");
    if (error != 0) problem = "CUDA error " + std::to_string(error);
  }
};

inline Cuda& cuda() {
  static Cuda* made = new Cuda;
  return *made;
}

}  // namespace bench
