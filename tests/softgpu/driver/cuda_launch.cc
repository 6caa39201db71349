// Launches: checked as the driver checks them, recorded, and not executed.
// SPDX-License-Identifier: Apache-2.0
#include "state.h"

using namespace softgpu;

namespace {

constexpr int kMaxThreadsPerBlock = 0, kSharedSize = 1, kNumRegs = 4, kPtxVersion = 5,
              kBinaryVersion = 6, kMaxDynamicShared = 8;
constexpr int kCooperative = 2, kClusterDimension = 4, kProgrammaticSerialization = 6;
constexpr unsigned kDefaultShared = 49152, kLargestShared = 101376;

std::string hex_bytes(const void* data, uint32_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint32_t i = 0; i < size; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(data)[i];
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Each argument's bytes in memory order; null where the image does not tell the sizes.
nlohmann::json arguments_of(const Function& function, void** arguments) {
  if (function.parameters.empty() || !arguments) return nullptr;
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    list.push_back(hex_bytes(arguments[i], function.parameters[i].size));
  }
  return list;
}

nlohmann::json attributes_of(const CUlaunchConfig& launch) {
  nlohmann::json list = nlohmann::json::object();
  for (unsigned i = 0; i < launch.num_attributes; ++i) {
    const CUlaunchAttribute& attribute = launch.attributes[i];
    switch (attribute.id) {
      case kCooperative:
        list["cooperative"] = attribute.value != 0;
        break;
      case kProgrammaticSerialization:
        list["programmatic"] = attribute.value != 0;
        break;
      case kClusterDimension:
        list["cluster"] = {attribute.cluster.x, attribute.cluster.y, attribute.cluster.z};
        break;
      default:
        list[std::to_string(attribute.id)] = true;
    }
  }
  return list;
}

bool sizes_valid(const CUlaunchConfig& launch, const Function& function) {
  const uint64_t threads = uint64_t{launch.block_x} * launch.block_y * launch.block_z;
  const bool grid = launch.grid_x > 0 && launch.grid_x <= 2147483647u && launch.grid_y > 0 &&
                    launch.grid_y <= 65535 && launch.grid_z > 0 && launch.grid_z <= 65535;
  const auto raised = function.attributes.find(kMaxDynamicShared);
  const unsigned shared =
      raised == function.attributes.end() ? kDefaultShared : static_cast<unsigned>(raised->second);
  return grid && threads > 0 && threads <= 1024 && launch.block_z <= 64 &&
         launch.shared_bytes <= shared;
}

// The image must fit the device of the stream's context; a kernel of a library is bound to it now.
CUresult check_function(const Function& function, CUcontext context) {
  const CUcontext own = function.module ? function.module->context : nullptr;
  if (own && own->device != context->device) return CUDA_ERROR_INVALID_HANDLE;
  return check_image(*function.image, visible_gpus()[static_cast<size_t>(context->device)],
                     config().cuda_version);
}

CUresult launch(const CUlaunchConfig& config, CUfunction function, void** arguments, void** extra) {
  const std::lock_guard lock(state().mutex);
  const CUcontext context = context_of(config.stream);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!sizes_valid(config, *function)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_function(*function, context)) return error;
  record("launch", {{"function", function->name},
                    {"device", context->device},
                    {"grid", {config.grid_x, config.grid_y, config.grid_z}},
                    {"block", {config.block_x, config.block_y, config.block_z}},
                    {"shared", config.shared_bytes},
                    {"stream", handle_text(config.stream)},
                    {"attributes", attributes_of(config)},
                    {"extra", extra != nullptr},
                    {"args", arguments_of(*function, arguments)}});
  return CUDA_SUCCESS;
}

}  // namespace

SOFTGPU_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_bytes, CUstream stream,
                                    void** arguments, void** extra) {
  if (const CUresult error = enter("cuLaunchKernel")) return error;
  return launch(
      {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0},
      function, arguments, extra);
}

SOFTGPU_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                      void** arguments, void** extra) {
  if (const CUresult error = enter("cuLaunchKernelEx")) return error;
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  return launch(*config, function, arguments, extra);
}

SOFTGPU_API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  if (const CUresult error = enter("cuFuncSetAttribute")) return error;
  const std::lock_guard lock(state().mutex);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == kMaxDynamicShared && (value < 0 || unsigned(value) > kLargestShared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice) {
  if (const CUresult error = enter("cuKernelSetAttribute")) return error;
  const std::lock_guard lock(state().mutex);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == kMaxDynamicShared && (value < 0 || unsigned(value) > kLargestShared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  kernel->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  if (const CUresult error = enter("cuFuncGetAttribute")) return error;
  const std::lock_guard lock(state().mutex);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const auto set = function->attributes.find(attribute);
  const int version = function->image->major * 10 + function->image->minor;
  switch (attribute) {
    case kMaxThreadsPerBlock:
      *value = 1024;
      break;
    case kSharedSize:
      *value = 0;
      break;
    case kNumRegs:
      *value = 32;
      break;
    case kPtxVersion:
    case kBinaryVersion:
      *value = version;
      break;
    case kMaxDynamicShared:
      *value = static_cast<int>(kDefaultShared);
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
  if (function && function->image->any_kernel) return CUDA_ERROR_INVALID_HANDLE;  // not known
  if (!function || index >= function->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->parameters[index].offset;
  if (size) *size = function->parameters[index].size;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                                 int block_size, size_t) {
  if (const CUresult error = enter("cuOccupancyMaxActiveBlocksPerMultiprocessor")) return error;
  if (!function || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = 2048 / block_size;
  return CUDA_SUCCESS;
}
