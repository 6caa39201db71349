// libnvidia-ml.so.1: the functions that Opdock's facts about GPUs need.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <deque>
#include <mutex>

#include "failures.h"
#include "record.h"

#define SOFTGPU_API extern "C" __attribute__((visibility("default")))

namespace {

using softgpu::config;

constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3,
              kNotFound = 6, kInsufficientSize = 7;

int initialized = 0;

// The object that a handle points to: a GPU, or one of its MIG instances.
struct Device {
  const softgpu::Gpu* gpu;
  const softgpu::MigInstance* instance;
};

struct Memory {
  unsigned long long total, free, used;
};

// Handles stay valid until the process ends, as NVML's own do.
Device* make_handle(const softgpu::Gpu* gpu, const softgpu::MigInstance* instance) {
  static std::mutex mutex;
  static std::deque<Device>& handles = *new std::deque<Device>;
  const std::lock_guard lock(mutex);
  return &handles.emplace_back(Device{gpu, instance});
}

int begin(const char* function) {
  if (const softgpu::Failure* failure = softgpu::strike(function)) return failure->error;
  return initialized > 0 ? kSuccess : kUninitialized;
}

int copy(const std::string& from, char* to, unsigned size) {
  if (from.size() + 1 > size) return kInsufficientSize;
  std::memcpy(to, from.c_str(), from.size() + 1);
  return kSuccess;
}

}  // namespace

// Locks a mutex, as the real NVML does: a process that is forked meanwhile cannot use NVML any
// more.
SOFTGPU_API int nvmlInit_v2() {
  static std::mutex initializing;
  const std::lock_guard lock(initializing);
  softgpu::record("nvmlInit");
  if (const softgpu::Failure* failure = softgpu::strike("nvmlInit_v2")) return failure->error;
  ++initialized;
  return kSuccess;
}

SOFTGPU_API int nvmlShutdown() {
  if (const int error = begin("nvmlShutdown")) return error;
  --initialized;
  return kSuccess;
}

SOFTGPU_API const char* nvmlErrorString(int error) {
  switch (error) {
    case 0:
      return "Success";
    case 1:
      return "Uninitialized";
    case 3:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 6:
      return "Not Found";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

SOFTGPU_API int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (const int error = begin("nvmlSystemGetCudaDriverVersion_v2")) return error;
  *version = config().cuda_version;
  return kSuccess;
}

SOFTGPU_API int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  if (const int error = begin("nvmlSystemGetDriverVersion")) return error;
  return copy(config().release, version, size);
}

SOFTGPU_API int nvmlDeviceGetCount_v2(unsigned* count) {
  if (const int error = begin("nvmlDeviceGetCount_v2")) return error;
  *count = static_cast<unsigned>(config().gpus.size());
  return kSuccess;
}

SOFTGPU_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (const int error = begin("nvmlDeviceGetHandleByIndex_v2")) return error;
  if (index >= config().gpus.size()) return kInvalidArgument;
  *device = make_handle(&config().gpus[index], nullptr);
  return kSuccess;
}

SOFTGPU_API int nvmlDeviceGetName(Device* device, char* name, unsigned size) {
  if (const int error = begin("nvmlDeviceGetName")) return error;
  return copy(device->gpu->name, name, size);
}

SOFTGPU_API int nvmlDeviceGetUUID(Device* device, char* uuid, unsigned size) {
  if (const int error = begin("nvmlDeviceGetUUID")) return error;
  return copy(device->instance ? device->instance->uuid : device->gpu->uuid, uuid, size);
}

SOFTGPU_API int nvmlDeviceGetCudaComputeCapability(Device* device, int* major, int* minor) {
  if (const int error = begin("nvmlDeviceGetCudaComputeCapability")) return error;
  *major = device->gpu->major;
  *minor = device->gpu->minor;
  return kSuccess;
}

SOFTGPU_API int nvmlDeviceGetMemoryInfo(Device* device, Memory* memory) {
  if (const int error = begin("nvmlDeviceGetMemoryInfo")) return error;
  const uint64_t total = device->instance ? device->instance->memory : device->gpu->memory;
  *memory = {total, total, 0};
  return kSuccess;
}

SOFTGPU_API int nvmlDeviceGetMaxMigDeviceCount(Device* device, unsigned* count) {
  if (const int error = begin("nvmlDeviceGetMaxMigDeviceCount")) return error;
  if (device->gpu->instances.empty()) return kNotSupported;
  *count = 7;
  return kSuccess;
}

SOFTGPU_API int nvmlDeviceGetMigDeviceHandleByIndex(Device* device, unsigned index,
                                                    Device** instance) {
  if (const int error = begin("nvmlDeviceGetMigDeviceHandleByIndex")) return error;
  if (index >= device->gpu->instances.size()) return kNotFound;
  *instance = make_handle(device->gpu, &device->gpu->instances[index]);
  return kSuccess;
}
