// SPDX-License-Identifier: Apache-2.0
#include "module.h"

#include <nlohmann/json.hpp>

#include "capture.h"
#include "code.h"

namespace softgpu {
namespace {

nlohmann::json describe(const Image& image) {
  return {{"arch", image.arch()}, {"size", image.size}, {"sha256", image.sha256}};
}

// Returns the kernel with this name, creating its Function on first use; NULL if the image has
// none.
Function* kernel_in(const Image& image, const std::string& name,
                    std::map<std::string, std::unique_ptr<Function>>* made) {
  const auto known = made->find(name);
  if (known != made->end()) return known->second.get();
  const auto found = image.kernels.find(name);
  if (found == image.kernels.end() && !image.any_kernel) return nullptr;
  std::unique_ptr<Function>& function = (*made)[name];
  function = std::make_unique<Function>();
  function->name = name;
  function->image = &image;
  if (found != image.kernels.end()) function->facts = found->second;
  return function.get();
}

}  // namespace

Result load_module(DeviceContext* context, const void* image, LoadedModule** out) {
  auto module = std::make_shared<LoadedModule>();
  module->context = context;
  Result result = read_image(image, context->gpu->amd, &module->image);
  if (result == kSuccess) result = check_image(module->image, *context->gpu);
  const Lock lock = lock_state();
  if (result == kSuccess) result = forbid_in_capture();
  nlohmann::json line = describe(module->image);
  line["device"] = context->device;
  line["result"] = result;
  record_object("load", line);
  if (result != kSuccess) return result;
  *out = module.get();
  state().modules[*out] = std::move(module);
  return kSuccess;
}

Result load_library(const void* image, LoadedLibrary** out) {
  auto library = std::make_shared<LoadedLibrary>();
  Result result = read_image(image, false, &library->image);
  if (result == kSuccess) {
    // A library is not bound to a device yet: it is enough that one GPU could run it.
    for (const Gpu& gpu : visible_gpus()) {
      result = check_image(library->image, gpu);
      if (result == kSuccess) break;
    }
  }
  nlohmann::json line = describe(library->image);
  line["library"] = true;
  line["result"] = result;
  record_object("load", line);
  if (result != kSuccess) return result;
  const Lock lock = lock_state();
  *out = library.get();
  state().libraries[*out] = std::move(library);
  return kSuccess;
}

Result find_function(LoadedModule* module, const char* name, Function** out) {
  if (!module || !name) return kInvalidValue;
  *out = function_in(module, name);
  record_object("function", {{"name", name}, {"found", *out != nullptr}});
  return *out ? kSuccess : kNotFound;
}

Function* function_in(LoadedModule* module, const std::string& name) {
  Function* const function = kernel_in(module->image, name, &module->functions);
  if (function) function->module = module;
  return function;
}

Result find_library_kernel(LoadedLibrary* library, const char* name, Function** out) {
  if (!library || !name) return kInvalidValue;
  *out = kernel_in(library->image, name, &library->kernels);
  record_object("function", {{"name", name}, {"found", *out != nullptr}});
  if (!*out) return kNotFound;
  (*out)->library = library;
  return kSuccess;
}

Result find_module(LoadedLibrary* library, DeviceContext* context, LoadedModule** out) {
  std::unique_ptr<LoadedModule>& module = library->modules[context->device];
  if (!module) {
    const Result result = check_image(library->image, *context->gpu);
    if (result != kSuccess) {
      library->modules.erase(context->device);
      return result;
    }
    module = std::make_unique<LoadedModule>();
    module->image = library->image;
    module->context = context;
    module->library = library;
  }
  *out = module.get();
  return kSuccess;
}

const Kernel* code_of(Function* function, const Gpu& gpu) {
  const Kernel* code = function->code;
  if (!code) {
    code = find_kernel(*function->image, function->name, gpu);
    function->code = code;
  }
  return code;
}

}  // namespace softgpu
