// Modules and libraries: images loaded, kernels looked up.
// SPDX-License-Identifier: Apache-2.0
#include "state.h"

using namespace softgpu;

namespace {

const Gpu& gpu_of(CUcontext context) {
  return visible_gpus()[static_cast<size_t>(context->device)];
}

nlohmann::json describe(const Image& image) {
  std::string arch =
      (image.ptx ? "compute_" : "sm_") + std::to_string(image.major) + std::to_string(image.minor);
  if (image.suffix != '\0') arch += image.suffix;
  return {{"arch", arch}, {"size", image.size}, {"sha256", image.sha256}};
}

// The kernel of that name, made on first use. NULL if the image has none.
Function* kernel_in(const Image& image, const char* name,
                    std::map<std::string, std::unique_ptr<Function>>* made) {
  std::unique_ptr<Function>& function = (*made)[name];
  if (function) return function.get();
  const auto found = image.kernels.find(name);
  if (found == image.kernels.end() && !image.any_kernel) {
    made->erase(name);
    return nullptr;
  }
  function = std::make_unique<Function>();
  function->name = name;
  function->image = &image;
  if (found != image.kernels.end()) function->parameters = found->second;
  return function.get();
}

CUresult load(CUcontext context, const void* data, CUmodule* out) {
  auto module = std::make_unique<Module>();
  module->context = context;
  CUresult result = read_image(data, &module->image);
  if (result == CUDA_SUCCESS) {
    result = check_image(module->image, gpu_of(context), config().cuda_version);
  }
  nlohmann::json line = describe(module->image);
  line["device"] = context->device;
  line["result"] = result;
  const std::lock_guard lock(state().mutex);
  if (result == CUDA_SUCCESS && any_capturing()) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  line["result"] = result;
  record("load", line);
  if (result != CUDA_SUCCESS) return result;
  *out = module.get();
  state().modules[*out] = std::move(module);
  return CUDA_SUCCESS;
}

// The library's module on the current device: made, and checked against the device, on first use.
CUresult module_of(CUlibrary library, CUcontext context, CUmodule* out) {
  std::unique_ptr<Module>& module = library->modules[context->device];
  if (!module) {
    const CUresult result = check_image(library->image, gpu_of(context), config().cuda_version);
    if (result != CUDA_SUCCESS) {
      library->modules.erase(context->device);
      return result;
    }
    module = std::make_unique<Module>();
    module->image = library->image;
    module->context = context;
    module->library = library;
  }
  *out = module.get();
  return CUDA_SUCCESS;
}

}  // namespace

SOFTGPU_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleLoadData", &context)) return error;
  return load(context, image, module);
}

SOFTGPU_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, int*,
                                        void**) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleLoadDataEx", &context)) return error;
  return load(context, image, module);
}

SOFTGPU_API CUresult cuModuleUnload(CUmodule module) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleUnload", &context)) return error;
  const std::lock_guard lock(state().mutex);
  record("unload", {{"module", handle_text(module)}});
  return state().modules.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuModuleGetFunction", &context)) return error;
  const std::lock_guard lock(state().mutex);
  if (!module || !name) return CUDA_ERROR_INVALID_VALUE;
  *function = kernel_in(module->image, name, &module->functions);
  record("function", {{"name", name}, {"found", *function != nullptr}});
  if (!*function) return CUDA_ERROR_NOT_FOUND;
  (*function)->module = module;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, int*, void**, unsigned,
                                       int*, void**, unsigned) {
  if (const CUresult error = enter("cuLibraryLoadData")) return error;
  auto made = std::make_unique<Library>();
  CUresult result = read_image(code, &made->image);
  if (result == CUDA_SUCCESS) {
    // Bound to no device yet: it is enough that one of them could run it.
    for (const Gpu& gpu : visible_gpus()) {
      result = check_image(made->image, gpu, config().cuda_version);
      if (result == CUDA_SUCCESS) break;
    }
  }
  nlohmann::json line = describe(made->image);
  line["library"] = true;
  line["result"] = result;
  record("load", line);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  *library = made.get();
  state().libraries[*library] = std::move(made);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuLibraryUnload(CUlibrary library) {
  if (const CUresult error = enter("cuLibraryUnload")) return error;
  const std::lock_guard lock(state().mutex);
  record("unload", {{"library", handle_text(library)}});
  return state().libraries.erase(library) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  if (const CUresult error = enter("cuLibraryGetKernel")) return error;
  const std::lock_guard lock(state().mutex);
  if (!library || !name) return CUDA_ERROR_INVALID_VALUE;
  *kernel = kernel_in(library->image, name, &library->kernels);
  record("function", {{"name", name}, {"found", *kernel != nullptr}});
  if (!*kernel) return CUDA_ERROR_NOT_FOUND;
  (*kernel)->library = library;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuLibraryGetModule", &context)) return error;
  const std::lock_guard lock(state().mutex);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  return module_of(library, context, module);
}

SOFTGPU_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuKernelGetFunction", &context)) return error;
  const std::lock_guard lock(state().mutex);
  if (!kernel || !kernel->library) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module = nullptr;
  if (const CUresult error = module_of(kernel->library, context, &module)) return error;
  *function = kernel_in(module->image, kernel->name.c_str(), &module->functions);
  if (!*function) return CUDA_ERROR_NOT_FOUND;
  (*function)->module = module;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  if (const CUresult error = enter("cuFuncGetModule")) return error;
  if (!function || !function->module) return CUDA_ERROR_INVALID_HANDLE;
  *module = function->module;
  return CUDA_SUCCESS;
}
