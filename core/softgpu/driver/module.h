// Modules and libraries: images loaded, kernels looked up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "image.h"
#include "state.h"

namespace softgpu {

struct Function {
  std::string name;
  const Image* image = nullptr;
  KernelFacts facts;
  LoadedModule* module = nullptr;            // NULL for a kernel of a library
  LoadedLibrary* library = nullptr;          // NULL for a function of a module
  std::map<int, int> attributes;             // cuFuncSetAttribute's
  std::atomic<const Kernel*> code{nullptr};  // what is executed, once it was looked for
};

struct LoadedModule {
  Image image;
  DeviceContext* context = nullptr;
  LoadedLibrary* library = nullptr;  // whose module this is, or NULL
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct LoadedLibrary {
  Image image;
  std::map<int, std::unique_ptr<LoadedModule>> modules;  // by device, made on demand
  std::map<std::string, std::unique_ptr<Function>> kernels;
};

// Both take the mutex.
Result load_module(DeviceContext* context, const void* image, LoadedModule** out);
Result load_library(const void* image, LoadedLibrary** out);

// The mutex must be held.
Result find_function(LoadedModule* module, const char* name, Function** out);
Result find_library_kernel(LoadedLibrary* library, const char* name, Function** out);
// The same without a record; NULL if there is none.
Function* function_in(LoadedModule* module, const std::string& name);
// The library's module on the context's device: made, and checked against it, on first use.
Result find_module(LoadedLibrary* library, DeviceContext* context, LoadedModule** out);

// Without the mutex: what is executed for the function on `gpu`; NULL as find_kernel().
const Kernel* code_of(Function* function, const Gpu& gpu);

}  // namespace softgpu
