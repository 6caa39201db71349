// CUDA's modules and libraries.
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"
#include "module.h"

using namespace softgpu;

SOFTGPU_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleLoadData", &context)) return error;
  return load_module(context, image, module);
}

SOFTGPU_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, int*,
                                        void**) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleLoadDataEx", &context)) return error;
  return load_module(context, image, module);
}

SOFTGPU_API CUresult cuModuleUnload(CUmodule module) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleUnload", &context)) return error;
  Lock lock = lock_state();
  record("unload", {{"module", handle_text(module)}});
  if (!state().modules.contains(module)) return CUDA_ERROR_INVALID_HANDLE;
  wait_for_context(&lock, module->context);
  return state().modules.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleGetFunction", &context)) return error;
  const Lock lock = lock_state();
  return find_function(module, name, function);
}

SOFTGPU_API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, int*, void**, unsigned,
                                       int*, void**, unsigned) {
  if (const CUresult error = enter("cuLibraryLoadData")) return error;
  return load_library(code, library);
}

SOFTGPU_API CUresult cuLibraryUnload(CUlibrary library) {
  if (const CUresult error = enter("cuLibraryUnload")) return error;
  Lock lock = lock_state();
  record("unload", {{"library", handle_text(library)}});
  wait_for_context(&lock, nullptr);
  return state().libraries.erase(library) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  if (const CUresult error = enter("cuLibraryGetKernel")) return error;
  const Lock lock = lock_state();
  return find_library_kernel(library, name, kernel);
}

SOFTGPU_API CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuLibraryGetModule", &context)) return error;
  const Lock lock = lock_state();
  return library ? find_module(library, context, module) : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuKernelGetFunction", &context)) return error;
  const Lock lock = lock_state();
  if (!kernel || !kernel->library) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module = nullptr;
  if (const CUresult error = find_module(kernel->library, context, &module)) return error;
  *function = function_in(module, kernel->name);
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SOFTGPU_API CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  if (const CUresult error = enter("cuFuncGetModule")) return error;
  if (!function || !function->module) return CUDA_ERROR_INVALID_HANDLE;
  *module = function->module;
  return CUDA_SUCCESS;
}
