// HIP's initialisation and devices.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "capture.h"
#include "hip.h"
#include "launch.h"

using namespace softgpu;
using namespace softgpu::hip;

namespace {

// hipDeviceAttribute_t; HIP 5.2 to 7 agree on these values.
enum Attribute : int {
  kAsyncEngines = 2,
  kCanMapHostMemory = 3,
  kClockRate = 5,
  kConcurrentKernels = 8,
  kCooperativeLaunch = 10,
  kIntegrated = 16,
  kL2Bytes = 19,
  kMajor = 23,
  kBlocksPerMultiprocessor = 25,
  kMaxBlockX = 26,
  kMaxBlockY = 27,
  kMaxBlockZ = 28,
  kMaxGridX = 29,
  kMaxGridY = 30,
  kMaxGridZ = 31,
  kMaxThreadsPerBlock = 56,
  kThreadsPerMultiprocessor = 57,
  kBusWidth = 59,
  kMemoryClockRate = 60,
  kMinor = 61,
  kMultiprocessors = 63,
  kPciBus = 67,
  kPciDevice = 68,
  kPciDomain = 69,
  kRegistersPerBlock = 71,
  kSharedPerBlock = 74,
  kConstantBytes = 83,
  kWarpSize = 87,
  kMemoryPools = 88,
  kSharedPerMultiprocessor = 10002,
};

// Returns false if the attribute is not known here.
bool attribute_of(const Gpu& gpu, int device, int attribute, int* value) {
  const auto configured = gpu.attributes.find(attribute);
  if (configured != gpu.attributes.end()) {
    *value = configured->second;
    return true;
  }
  const Limits limits = limits_of(gpu);
  switch (attribute) {
    case kAsyncEngines:
      *value = 2;
      break;
    case kCanMapHostMemory:
    case kConcurrentKernels:
    case kCooperativeLaunch:
    case kMemoryPools:
      *value = 1;
      break;
    case kIntegrated:
      *value = gpu.integrated ? 1 : 0;
      break;
    case kL2Bytes:
      *value = 8 << 20;
      break;
    case kMajor:
      *value = gpu.major;
      break;
    case kMinor:
      *value = gpu.minor;
      break;
    case kMaxBlockX:
    case kMaxBlockY:
    case kMaxBlockZ:
    case kMaxThreadsPerBlock:
      *value = 1024;
      break;
    case kMaxGridX:
      *value = 2147483647;
      break;
    case kMaxGridY:
    case kMaxGridZ:
      *value = 65535;
      break;
    case kBlocksPerMultiprocessor:
      *value = static_cast<int>(limits.blocks_per_multiprocessor);
      break;
    case kThreadsPerMultiprocessor:
      *value = static_cast<int>(limits.threads_per_multiprocessor);
      break;
    case kClockRate:
      *value = 1700000;
      break;
    case kMemoryClockRate:
      *value = 1600000;
      break;
    case kBusWidth:
      *value = 4096;
      break;
    case kMultiprocessors:
      *value = static_cast<int>(gpu.multiprocessors);
      break;
    case kPciBus:
      *value = device + 1;
      break;
    case kPciDevice:
    case kPciDomain:
      *value = 0;
      break;
    case kRegistersPerBlock:
    case kSharedPerBlock:
      *value = 65536;
      break;
    case kSharedPerMultiprocessor:
      *value = static_cast<int>(limits.shared_per_multiprocessor);
      break;
    case kConstantBytes:
      *value = 2147483647;
      break;
    case kWarpSize:
      *value = static_cast<int>(gpu.warp_size);
      break;
    default:
      return false;
  }
  return true;
}

// Calls body(gpu) for a device that need not be the current one.
template <typename Body>
Result about(const char* function, int device, const Body& body) {
  DeviceContext* context = nullptr;
  Result result = enter_hip(function);
  if (result == kSuccess) result = find_context(device, &context);
  return remember(result == kSuccess ? body(*context->gpu) : result);
}

}  // namespace

namespace softgpu::hip {

int& current_device() {
  thread_local int device = 0;
  return device;
}

Result enter_hip(const char* function) {
  if (const Result error = initialise(&state().hip, visible_amd_gpus())) return error;
  return enter(function);
}

Result find_context(int device, DeviceContext** context) {
  if (device < 0 || static_cast<size_t>(device) >= state().hip.size()) return kInvalidDevice;
  *context = &state().hip[static_cast<size_t>(device)];
  return kSuccess;
}

}  // namespace softgpu::hip

SOFTGPU_API Result hipInit(unsigned flags) {
  record("init", {{"flags", flags}});
  if (const Failure* failure = strike("hipInit")) return remember(failure->error);
  return remember(initialise(&state().hip, visible_amd_gpus()));
}

SOFTGPU_API Result hipDriverGetVersion(int* version) {
  if (!version) return remember(kInvalidValue);
  *version = config().hip_version;
  return kSuccess;
}

SOFTGPU_API Result hipRuntimeGetVersion(int* version) {
  return hipDriverGetVersion(version);
}

SOFTGPU_API Result hipGetDeviceCount(int* count) {
  *count = 0;
  if (const Result error = enter_hip("hipGetDeviceCount")) return remember(error);
  *count = static_cast<int>(state().hip.size());
  return kSuccess;
}

SOFTGPU_API Result hipDeviceGet(int* device, int ordinal) {
  return about("hipDeviceGet", ordinal, [&](const Gpu&) {
    *device = ordinal;
    return kSuccess;
  });
}

SOFTGPU_API Result hipGetDevice(int* device) {
  if (const Result error = enter_hip("hipGetDevice")) return remember(error);
  *device = current_device();
  return kSuccess;
}

SOFTGPU_API Result hipSetDevice(int device) {
  return about("hipSetDevice", device, [&](const Gpu&) {
    current_device() = device;
    return kSuccess;
  });
}

SOFTGPU_API Result hipDeviceGetName(char* name, int size, int device) {
  return about("hipDeviceGetName", device, [&](const Gpu& gpu) {
    if (size <= 0) return kInvalidValue;
    std::memset(name, 0, static_cast<size_t>(size));
    std::strncpy(name, gpu.name.c_str(), static_cast<size_t>(size) - 1);
    return kSuccess;
  });
}

SOFTGPU_API Result hipDeviceGetUuid(char (*uuid)[16], int device) {
  return about("hipDeviceGetUuid", device, [&](const Gpu& gpu) {
    // As in HIP, the bytes are the UUID's digits.
    std::memcpy(uuid, gpu.uuid.substr(4).append(16, '0').data(), 16);
    return kSuccess;
  });
}

SOFTGPU_API Result hipDeviceGetAttribute(int* value, int attribute, int device) {
  return about("hipDeviceGetAttribute", device, [&](const Gpu& gpu) {
    return attribute_of(gpu, device, attribute, value) ? kSuccess : kInvalidValue;
  });
}

SOFTGPU_API Result hipDeviceTotalMem(size_t* bytes, int device) {
  return about("hipDeviceTotalMem", device, [&](const Gpu& gpu) {
    *bytes = gpu.memory;
    return kSuccess;
  });
}

SOFTGPU_API Result hipDeviceSynchronize() {
  return on_locked_device("hipDeviceSynchronize", [](DeviceContext* context, Lock* lock) -> Result {
    if (const Result error = forbid_in_capture()) return error;
    wait_for_context(lock, context);
    return context->failed;
  });
}

SOFTGPU_API Result hipDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return about("hipDevicePrimaryCtxGetState", device, [&](const Gpu&) {
    const Lock lock = lock_state();
    *flags = 0;
    *active = state().hip[static_cast<size_t>(device)].references > 0 ? 1 : 0;
    return kSuccess;
  });
}

SOFTGPU_API Result hipDevicePrimaryCtxRetain(DeviceContext** context, int device) {
  return about("hipDevicePrimaryCtxRetain", device, [&](const Gpu&) {
    const Lock lock = lock_state();
    *context = &state().hip[static_cast<size_t>(device)];
    if ((*context)->references++ == 0) record("context", {{"device", device}});
    return kSuccess;
  });
}

SOFTGPU_API Result hipDevicePrimaryCtxRelease(int device) {
  return about("hipDevicePrimaryCtxRelease", device, [&](const Gpu&) {
    const Lock lock = lock_state();
    DeviceContext& context = state().hip[static_cast<size_t>(device)];
    if (context.references == 0) return kInvalidContext;
    --context.references;
    return kSuccess;
  });
}
