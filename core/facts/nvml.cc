// SPDX-License-Identifier: Apache-2.0
#include "facts/nvml.h"

#include <dlfcn.h>

#include <mutex>

#include "base/fork_aware_lock.h"
#include "facts/arch.h"

namespace opdock {
namespace {

// NVML's C interface as in its reference manual; the header is not needed.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
constexpr int kSuccess = 0;
constexpr int kDriverNotLoaded = 9;

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*max_instances)(Device, unsigned*) = nullptr;     // absent before 450
  int (*instance)(Device, unsigned, Device*) = nullptr;  // absent before 450
};

template <typename F>
bool find(void* library, const char* name, F** out) {
  *out = reinterpret_cast<F*>(dlsym(library, name));
  return *out != nullptr;
}

// Returns the name of the first function that is missing, or NULL.
const char* bind(void* library, Nvml* nvml) {
  if (!find(library, "nvmlInit_v2", &nvml->init)) return "nvmlInit_v2";
  if (!find(library, "nvmlShutdown", &nvml->shutdown)) return "nvmlShutdown";
  if (!find(library, "nvmlErrorString", &nvml->error_string)) return "nvmlErrorString";
  if (!find(library, "nvmlSystemGetCudaDriverVersion_v2", &nvml->cuda_version) &&
      !find(library, "nvmlSystemGetCudaDriverVersion", &nvml->cuda_version)) {
    return "nvmlSystemGetCudaDriverVersion_v2";
  }
  if (!find(library, "nvmlSystemGetDriverVersion", &nvml->driver_version)) {
    return "nvmlSystemGetDriverVersion";
  }
  if (!find(library, "nvmlDeviceGetCount_v2", &nvml->count)) return "nvmlDeviceGetCount_v2";
  if (!find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle)) {
    return "nvmlDeviceGetHandleByIndex_v2";
  }
  if (!find(library, "nvmlDeviceGetName", &nvml->name)) return "nvmlDeviceGetName";
  if (!find(library, "nvmlDeviceGetUUID", &nvml->uuid)) return "nvmlDeviceGetUUID";
  if (!find(library, "nvmlDeviceGetCudaComputeCapability", &nvml->capability)) {
    return "nvmlDeviceGetCudaComputeCapability";
  }
  if (!find(library, "nvmlDeviceGetMemoryInfo", &nvml->memory)) return "nvmlDeviceGetMemoryInfo";
  find(library, "nvmlDeviceGetMaxMigDeviceCount", &nvml->max_instances);
  find(library, "nvmlDeviceGetMigDeviceHandleByIndex", &nvml->instance);
  return nullptr;
}

std::string text_of(int (*get)(Device, char*, unsigned), Device device) {
  char text[128] = {};
  return get(device, text, sizeof text) == kSuccess ? text : "";
}

void add_instances(const Nvml& nvml, Device device, int parent, NvmlFacts* facts) {
  if (!nvml.max_instances || !nvml.instance) return;
  unsigned count = 0;
  if (nvml.max_instances(device, &count) != kSuccess) return;
  for (unsigned i = 0; i < count; ++i) {
    Device instance = nullptr;
    if (nvml.instance(device, i, &instance) != kSuccess) continue;  // an unused slot
    Memory memory{};
    nvml.memory(instance, &memory);
    facts->instances.push_back({text_of(nvml.uuid, instance), parent, memory.total});
  }
}

// Leaves out a GPU that does not answer (it has fallen off the bus, or there is no permission), and
// reports it as the problem: CUDA does not see it either.
void add_gpu(const Nvml& nvml, unsigned index, bool with_instances, NvmlFacts* facts) {
  Device device = nullptr;
  Gpu gpu{};
  gpu.backend = Backend::kCuda;
  int status = nvml.handle(index, &device);
  if (status == kSuccess) status = nvml.capability(device, &gpu.major, &gpu.minor);
  if (status != kSuccess) {
    facts->problem = "GPU " + std::to_string(index) + ": " + nvml.error_string(status);
    return;
  }
  gpu.index = static_cast<int>(facts->gpus.size());
  gpu.name = text_of(nvml.name, device);
  gpu.uuid = text_of(nvml.uuid, device);
  gpu.arch = "sm_" + std::to_string(gpu.major) + std::to_string(gpu.minor);
  gpu.tegra = is_tegra(gpu.major, gpu.minor);
  Memory memory{};
  if (nvml.memory(device, &memory) == kSuccess) gpu.memory_bytes = memory.total;
  if (with_instances) add_instances(nvml, device, gpu.index, facts);
  facts->gpus.push_back(std::move(gpu));
}

}  // namespace

NvmlFacts ask_nvml(const std::string& library, bool with_instances) {
  NvmlFacts facts;
  // NVML has a lock of its own. In a child that was forked while another thread was inside NVML,
  // calling it would block for ever, so such a child does not.
  static ForkAwareLock asking;
  const ForkAwareLock::Acquire took = asking.lock();
  if (took == ForkAwareLock::Acquire::kPoisoned) asking.unlock_poisoned();
  if (took != ForkAwareLock::Acquire::kAcquired) {
    facts.present = true;
    facts.problem = "another thread was in " + library + " when this process was forked";
    return facts;
  }
  const ForkAwareGuard guard(&asking, std::adopt_lock);
  // The library is never closed: other code in the process may use it, and nobody tests unloading
  // it.
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    facts.problem = library + " is not installed";
    return facts;
  }
  facts.present = true;
  Nvml nvml;
  if (const char* missing = bind(handle, &nvml)) {
    facts.problem = library + " has no " + missing;
    return facts;
  }
  if (const int status = nvml.init(); status != kSuccess) {
    facts.no_driver = status == kDriverNotLoaded;
    facts.problem = std::string("nvmlInit_v2: ") + nvml.error_string(status);
    return facts;
  }
  int cuda = 0;
  if (nvml.cuda_version(&cuda) == kSuccess && cuda > 0) {
    facts.cuda =
        Version{static_cast<uint32_t>(cuda / 1000), static_cast<uint32_t>(cuda % 1000 / 10)};
  }
  char release[128] = {};
  if (nvml.driver_version(release, sizeof release) == kSuccess) facts.release = release;
  unsigned count = 0;
  if (const int status = nvml.count(&count); status != kSuccess) {
    facts.problem = std::string("nvmlDeviceGetCount_v2: ") + nvml.error_string(status);
  }
  for (unsigned i = 0; i < count; ++i) add_gpu(nvml, i, with_instances, &facts);
  nvml.shutdown();
  return facts;
}

}  // namespace opdock
