// CUDA's initialisation and devices.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cuda.h"
#include "launch.h"

using namespace softgpu;

namespace {

struct Attribute {
  int id, value;
};

// Attributes of a mid-sized GPU, which a configuration can override.
constexpr Attribute kDefaults[] = {
    {1, 1024},        // MAX_THREADS_PER_BLOCK
    {2, 1024},        // MAX_BLOCK_DIM_X
    {3, 1024},        // MAX_BLOCK_DIM_Y
    {4, 64},          // MAX_BLOCK_DIM_Z
    {5, 2147483647},  // MAX_GRID_DIM_X
    {6, 65535},       // MAX_GRID_DIM_Y
    {7, 65535},       // MAX_GRID_DIM_Z
    {9, 65536},       // TOTAL_CONSTANT_MEMORY
    {12, 65536},      // MAX_REGISTERS_PER_BLOCK
    {13, 1500000},    // CLOCK_RATE
    {14, 512},        // TEXTURE_ALIGNMENT
    {19, 1},          // CAN_MAP_HOST_MEMORY
    {31, 1},          // CONCURRENT_KERNELS
    {34, 0},          // PCI_DEVICE_ID
    {36, 8000000},    // MEMORY_CLOCK_RATE
    {37, 256},        // GLOBAL_MEMORY_BUS_WIDTH
    {38, 4194304},    // L2_CACHE_SIZE
    {40, 2},          // ASYNC_ENGINE_COUNT
    {41, 1},          // UNIFIED_ADDRESSING
    {82, 65536},      // MAX_REGISTERS_PER_MULTIPROCESSOR
    {83, 1},          // MANAGED_MEMORY
    {95, 1},          // COOPERATIVE_LAUNCH
    {111, 1024},      // RESERVED_SHARED_MEMORY_PER_BLOCK
    {115, 1},         // MEMORY_POOLS_SUPPORTED
};

int attribute_of(const Gpu& gpu, CUdevice device, int id) {
  const auto configured = gpu.attributes.find(id);
  if (configured != gpu.attributes.end()) return configured->second;
  const Limits limits = limits_of(gpu);
  switch (id) {
    case 8:  // MAX_SHARED_MEMORY_PER_BLOCK
      return static_cast<int>(limits.shared_per_block);
    case 10:
      return static_cast<int>(gpu.warp_size);
    case 16:
      return static_cast<int>(gpu.multiprocessors);
    case 39:  // MAX_THREADS_PER_MULTIPROCESSOR
      return static_cast<int>(limits.threads_per_multiprocessor);
    case 81:  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
      return static_cast<int>(limits.shared_per_multiprocessor);
    case 97:  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
      return static_cast<int>(limits.shared_per_block_optin);
    case 106:  // MAX_BLOCKS_PER_MULTIPROCESSOR
      return static_cast<int>(limits.blocks_per_multiprocessor);
    case 18:
      return gpu.integrated ? 1 : 0;
    case 33:
      return device + 1;  // PCI_BUS_ID
    case 75:
      return gpu.major;
    case 76:
      return gpu.minor;
    case 120:
      return gpu.major >= 9 ? 1 : 0;  // CLUSTER_LAUNCH
    default:
      break;
  }
  for (const Attribute& attribute : kDefaults) {
    if (attribute.id == id) return attribute.value;
  }
  return 0;
}

CUresult check_device(CUdevice device) {
  const bool valid = device >= 0 && static_cast<size_t>(device) < visible_gpus().size();
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

const Gpu& gpu(CUdevice device) {
  return visible_gpus()[static_cast<size_t>(device)];
}

}  // namespace

SOFTGPU_API CUresult cuInit(unsigned flags) {
  record("init", {{"flags", flags}});
  if (const Failure* failure = strike("cuInit")) return failure->error;
  return initialise(&state().cuda, visible_gpus());
}

SOFTGPU_API CUresult cuDriverGetVersion(int* version) {
  if (const Failure* failure = strike("cuDriverGetVersion")) return failure->error;
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = config().cuda_version;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetCount(int* count) {
  if (const CUresult error = enter("cuDeviceGetCount")) return error;
  *count = static_cast<int>(visible_gpus().size());
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult error = enter("cuDeviceGet")) return error;
  *device = ordinal;
  return check_device(ordinal);
}

SOFTGPU_API CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  if (const CUresult error = enter("cuDeviceGetName")) return error;
  if (const CUresult error = check_device(device)) return error;
  if (size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::memset(name, 0, static_cast<size_t>(size));
  std::strncpy(name, gpu(device).name.c_str(), static_cast<size_t>(size) - 1);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  if (const CUresult error = enter("cuDeviceGetAttribute")) return error;
  if (const CUresult error = check_device(device)) return error;
  *value = attribute_of(gpu(device), device, attribute);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const CUresult error = enter("cuDeviceGetUuid_v2")) return error;
  if (const CUresult error = check_device(device)) return error;
  std::string digits;
  for (const char c : gpu(device).uuid.substr(4)) {  // skips "GPU-"
    if (c != '-') digits += c;
  }
  digits.resize(32, '0');
  for (size_t i = 0; i < 16; ++i) {
    uuid->bytes[i] =
        static_cast<unsigned char>(std::strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

SOFTGPU_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (const CUresult error = enter("cuDeviceTotalMem_v2")) return error;
  if (const CUresult error = check_device(device)) return error;
  *bytes = gpu(device).memory;
  return CUDA_SUCCESS;
}

// Returns undocumented tables of functions, of which the stand-in provides none. NVRTC 13 reads the
// size of two tables without checking whether it got them, so these two exist, but are empty. For
// other tables the CUDA runtime reports the error.
SOFTGPU_API CUresult cuGetExportTable(const void** table, const void* id) {
  static const size_t kEmpty[8] = {sizeof(size_t)};
  static constexpr unsigned char kNvrtcs[2][16] = {
      {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3,
       0x28},
      {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
       0xca}};
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  for (const auto& known : kNvrtcs)
    if (std::memcmp(id, known, sizeof known) == 0) *table = kEmpty;
  return *table ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}
