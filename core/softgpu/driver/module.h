// Modules and libraries: loads images and finds their kernels.
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
  std::map<int, int> attributes;             // set by cuFuncSetAttribute
  std::atomic<const Kernel*> code{nullptr};  // the executed kernel, once it has been found
};

struct LoadedModule {
  Image image;
  DeviceContext* context = nullptr;
  LoadedLibrary* library = nullptr;  // the library that this module belongs to, or NULL
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct LoadedLibrary {
  Image image;
  std::map<int, std::unique_ptr<LoadedModule>> modules;  // by device, created on demand
  std::map<std::string, std::unique_ptr<Function>> kernels;
};

// These two lock the mutex themselves.
Result load_module(DeviceContext* context, const void* image, LoadedModule** out);
Result load_library(const void* image, LoadedLibrary** out);

// The mutex must be held for the following functions.
Result find_function(LoadedModule* module, const char* name, Function** out);
Result find_library_kernel(LoadedLibrary* library, const char* name, Function** out);
// Does the same without a record; NULL if there is none.
Function* function_in(LoadedModule* module, const std::string& name);
// Finds the library's module on the context's device. On first use, checks the image against the
// device and creates the module.
Result find_module(LoadedLibrary* library, DeviceContext* context, LoadedModule** out);

// Returns the executed kernel of the function on `gpu`; NULL on failure, as find_kernel(). The
// caller must not hold the mutex.
const Kernel* code_of(Function* function, const Gpu& gpu);

}  // namespace softgpu
