// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <iterator>

namespace convert_copy {
namespace {

using opdock::detail::concat;

struct Names {
  const char* cuda;  // as exported by libcuda
  const char* hip;   // NULL: HIP does not need it
};
constexpr Names kNames[] = {
    {"cuMemHostAlloc", "hipHostMalloc"},
    {"cuMemFreeHost", "hipHostFree"},
    {"cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"},
    {"cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"},
    {"cuEventCreate", "hipEventCreateWithFlags"},
    {"cuEventDestroy_v2", "hipEventDestroy"},
    {"cuEventRecord", "hipEventRecord"},
    {"cuEventQuery", "hipEventQuery"},
    {"cuEventSynchronize", "hipEventSynchronize"},
    {"cuStreamSynchronize", "hipStreamSynchronize"},
    {"cuGetErrorName", "hipGetErrorName"},
    {"cuCtxGetCurrent", nullptr},
    {"cuCtxGetDevice", nullptr},
    {"cuDevicePrimaryCtxGetState", nullptr},
    {"cuDevicePrimaryCtxRetain", nullptr},
};
static_assert(std::size(kNames) == static_cast<size_t>(Function::kCount));

constexpr int kOutOfMemory = 2;

opdock_status status_of(int result) {
  if (result == kOutOfMemory) return OPDOCK_OUT_OF_MEMORY;
  return opdock::loses_device(result) ? OPDOCK_DEVICE_LOST : OPDOCK_DEVICE_ERROR;
}

const char* advice_for(opdock_status status) {
  switch (status) {
    case OPDOCK_OUT_OF_MEMORY:
      return "; free pinned host memory";
    case OPDOCK_DEVICE_LOST:
      return "; the device is of no more use to this process";
    default:
      return "; see the driver's reference for this error";
  }
}

}  // namespace

const Driver& Driver::of(const opdock::Call& call) {
  // A driver stays loaded until the process ends.
  if (call.is_cuda()) {
    static const Driver cuda(call);
    return cuda;
  }
  static const Driver hip(call);
  return hip;
}

Driver::Driver(const opdock::Call& call) : is_cuda_(call.is_cuda()) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const char* const name = name_of(static_cast<Function>(i));
    functions_[i] = name == nullptr ? nullptr : call.driver_symbol<void*>(name);
    if (name == nullptr || functions_[i] != nullptr) continue;
    throw opdock::Error(OPDOCK_UNSUPPORTED, concat("found a GPU driver without ", name,
                                                   ", wanted one that has it; upgrade the driver"));
  }
}

const char* Driver::name_of(Function function) const {
  const Names& names = kNames[static_cast<size_t>(function)];
  return is_cuda_ ? names.cuda : names.hip;
}

const char* Driver::error_name(int result) const {
  const char* name = nullptr;
  if (is_cuda_) return call(Function::kErrorName, result, &name) == 0 ? name : nullptr;
  void* const function = functions_[static_cast<size_t>(Function::kErrorName)];
  return reinterpret_cast<const char* (*)(int)>(function)(result);
}

void Driver::fail(Function function, int result) const {
  const char* const name = error_name(result);
  const opdock_status status = status_of(result);
  throw opdock::Error(status, concat(name_of(function), ": ", name == nullptr ? "error" : name,
                                     " (", result, ")", advice_for(status)));
}

}  // namespace convert_copy
