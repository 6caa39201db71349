// CUDA's launches, and attributes of functions.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda.h"
#include "launch.h"
#include "reason.h"

using namespace softgpu;

namespace {

constexpr int kMaxThreadsPerBlock = 0, kSharedSize = 1, kNumRegs = 4, kPtxVersion = 5,
              kBinaryVersion = 6, kNonPortableCluster = 14;
constexpr int kCooperative = 2, kClusterDimension = 4, kProgrammaticSerialization = 6;

void read_attributes(const CUlaunchConfig& config, LaunchRequest* request) {
  for (unsigned i = 0; i < config.num_attributes; ++i) {
    const CUlaunchAttribute& attribute = config.attributes[i];
    switch (attribute.id) {
      case kCooperative:
        request->attributes["cooperative"] = request->cooperative = attribute.value != 0;
        break;
      case kProgrammaticSerialization:
        request->attributes["programmatic"] = request->programmatic = attribute.value != 0;
        break;
      case kClusterDimension:
        request->cluster[0] = attribute.cluster.x;
        request->cluster[1] = attribute.cluster.y;
        request->cluster[2] = attribute.cluster.z;
        request->attributes["cluster"] = true;
        break;
      default:
        request->attributes[std::to_string(attribute.id)] = true;
    }
  }
}

CUresult launch(const char* name, const CUlaunchConfig& config, CUfunction function,
                void** arguments, void** extra) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error =
          enter_with_stream(name, config.stream, &stream, CUDA_ERROR_INVALID_CONTEXT)) {
    return error;
  }
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  LaunchRequest request{.grid = {config.grid_x, config.grid_y, config.grid_z},
                        .block = {config.block_x, config.block_y, config.block_z},
                        .shared_bytes = config.shared_bytes,
                        .handle = config.stream,
                        .arguments = arguments,
                        .extra = extra};
  read_attributes(config, &request);
  const auto large = function->attributes.find(kNonPortableCluster);
  request.large_clusters = large != function->attributes.end() && large->second != 0;
  return launch_kernel(stream, function, request);
}

CUresult set_attribute(CUfunction function, int attribute, int value, const Gpu& gpu) {
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const Lock lock = lock_state();
  const uint32_t most = limits_of(gpu).shared_per_block_optin, own = function->facts.static_shared;
  if (attribute == kMaxDynamicShared && (value < 0 || static_cast<uint64_t>(value) + own > most)) {
    explain(kInvalidValue, std::to_string(value) + " bytes of dynamic shared memory for " +
                               function->name + " beside its " + std::to_string(own) +
                               " of static: more than the " + std::to_string(most) +
                               " that a block of " + gpu.arch + " may ask for");
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

// Returns the GPU that a query about a function refers to: its module's, else the current
// context's, else the first.
const Gpu& gpu_of(const Function& function) {
  if (function.module) return *function.module->context->gpu;
  return current_context() ? *current_context()->gpu : visible_gpus().front();
}

}  // namespace

SOFTGPU_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_bytes, CUstream stream,
                                    void** arguments, void** extra) {
  return launch(
      "cuLaunchKernel",
      {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0},
      function, arguments, extra);
}

SOFTGPU_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x,
                                               unsigned grid_y, unsigned grid_z, unsigned block_x,
                                               unsigned block_y, unsigned block_z,
                                               unsigned shared_bytes, CUstream stream,
                                               void** arguments) {
  CUlaunchAttribute cooperative{};
  cooperative.id = kCooperative;
  cooperative.value = 1;
  return launch(
      "cuLaunchCooperativeKernel",
      {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, &cooperative, 1},
      function, arguments, nullptr);
}

SOFTGPU_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                      void** arguments, void** extra) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  return launch("cuLaunchKernelEx", *config, function, arguments, extra);
}

SOFTGPU_API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  if (const CUresult error = enter("cuFuncSetAttribute")) return error;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  return set_attribute(function, attribute, value, gpu_of(*function));
}

SOFTGPU_API CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel,
                                          CUdevice device) {
  if (const CUresult error = enter("cuKernelSetAttribute")) return error;
  const auto& gpus = visible_gpus();
  if (device < 0 || static_cast<size_t>(device) >= gpus.size()) return CUDA_ERROR_INVALID_DEVICE;
  return set_attribute(kernel, attribute, value, gpus[static_cast<size_t>(device)]);
}

SOFTGPU_API CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  if (const CUresult error = enter("cuFuncGetAttribute")) return error;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const Gpu& gpu = gpu_of(*function);
  const bool asked = attribute == kMaxThreadsPerBlock && config().executes();
  const Kernel* const code = asked ? code_of(function, gpu) : nullptr;
  const Lock lock = lock_state();
  const auto set = function->attributes.find(attribute);
  switch (attribute) {
    case kMaxThreadsPerBlock:
      *value = code ? static_cast<int>(code->max_threads) : 1024;
      break;
    case kSharedSize:
      *value = static_cast<int>(function->facts.static_shared);
      break;
    case kNumRegs:
      *value = 32;
      break;
    case kPtxVersion:
    case kBinaryVersion:
      *value = function->image->major * 10 + function->image->minor;
      break;
    case kMaxDynamicShared:
      *value = std::max(0, static_cast<int>(limits_of(gpu).shared_per_block) -
                               static_cast<int>(function->facts.static_shared));
      break;
    default:
      *value = 0;
  }
  if (set != function->attributes.end()) *value = set->second;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                                        size_t* size) {
  if (const CUresult error = enter("cuFuncGetParamInfo")) return error;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Parameter> parameters;
  if (!parameters_of(function, gpu_of(*function), &parameters)) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (size) *size = parameters[index].size;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                                 int block_size, size_t shared) {
  if (const CUresult error = enter("cuOccupancyMaxActiveBlocksPerMultiprocessor")) return error;
  if (!function || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = static_cast<int>(blocks_per_multiprocessor(
      gpu_of(*function), static_cast<uint32_t>(block_size), static_cast<uint32_t>(shared)));
  return CUDA_SUCCESS;
}
