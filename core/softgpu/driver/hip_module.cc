// HIP's modules and launches.
// SPDX-License-Identifier: Apache-2.0
#include "hip.h"
#include "launch.h"
#include "module.h"

using namespace softgpu;
using namespace softgpu::hip;

namespace {

// launch_kernel() locks the mutex itself, because it may compile.
Result launch(const char* name, Function* function, const LaunchRequest& request) {
  std::shared_ptr<Stream> stream;
  const Result found =
      on_stream(name, request.handle, [&](const std::shared_ptr<Stream>& behind, Lock*) {
        stream = behind;
        return kSuccess;
      });
  if (found != kSuccess) return found;
  if (!function) return remember(kInvalidHandle);
  return remember(launch_kernel(stream, function, request));
}

}  // namespace

SOFTGPU_API Result hipModuleLoadData(LoadedModule** module, const void* image) {
  return on_device("hipModuleLoadData",
                   [&](DeviceContext* context) { return load_module(context, image, module); });
}

SOFTGPU_API Result hipModuleLoadDataEx(LoadedModule** module, const void* image, unsigned, int*,
                                       void**) {
  return on_device("hipModuleLoadDataEx",
                   [&](DeviceContext* context) { return load_module(context, image, module); });
}

SOFTGPU_API Result hipModuleUnload(LoadedModule* module) {
  return on_locked_device("hipModuleUnload", [&](DeviceContext*, Lock* lock) {
    record("unload", {{"module", handle_text(module)}});
    if (!state().modules.contains(module)) return kInvalidHandle;
    wait_for_context(lock, module->context);
    return state().modules.erase(module) == 1 ? kSuccess : kInvalidHandle;
  });
}

SOFTGPU_API Result hipModuleGetFunction(Function** function, LoadedModule* module,
                                        const char* name) {
  return on_locked_device("hipModuleGetFunction", [&](DeviceContext*, Lock*) {
    return find_function(module, name, function);
  });
}

SOFTGPU_API Result hipModuleLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                         unsigned block_z, unsigned shared_bytes, Stream* stream,
                                         void** arguments, void** extra) {
  return launch("hipModuleLaunchKernel", function,
                {.grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .shared_bytes = shared_bytes,
                 .handle = stream,
                 .arguments = arguments,
                 .extra = extra});
}

SOFTGPU_API Result hipModuleLaunchCooperativeKernel(Function* function, unsigned grid_x,
                                                    unsigned grid_y, unsigned grid_z,
                                                    unsigned block_x, unsigned block_y,
                                                    unsigned block_z, unsigned shared_bytes,
                                                    Stream* stream, void** arguments) {
  return launch("hipModuleLaunchCooperativeKernel", function,
                {.grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .shared_bytes = shared_bytes,
                 .cooperative = true,
                 .attributes = {{"cooperative", true}},
                 .handle = stream,
                 .arguments = arguments});
}

SOFTGPU_API Result hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                      Function* function,
                                                                      int block_size,
                                                                      size_t shared) {
  return on_device(
      "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", [&](DeviceContext* context) {
        if (!function || block_size <= 0) return kInvalidValue;
        *blocks = static_cast<int>(blocks_per_multiprocessor(
            *context->gpu, static_cast<uint32_t>(block_size), static_cast<uint32_t>(shared)));
        return kSuccess;
      });
}
