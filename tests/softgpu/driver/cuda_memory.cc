// Memory: the host's own, with the driver's rules about what may be touched and freed.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "state.h"

using namespace softgpu;

namespace {

constexpr uint64_t kAlignment = 256;  // the driver's

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

CUresult allocate(CUcontext context, CUdevice device, uint64_t bytes, void** out) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  uint64_t used = bytes;
  for (const auto& [address, allocation] : state().allocations) {
    if (allocation.device == device) used += allocation.size;
  }
  if (device >= 0 && used > visible_gpus()[static_cast<size_t>(device)].memory) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
  state().allocations[reinterpret_cast<uintptr_t>(*out)] = {bytes, device, context};
  record("allocate", {{"bytes", bytes}, {"device", device}});
  return CUDA_SUCCESS;
}

CUresult release(void* memory) {
  if (!memory) return CUDA_SUCCESS;
  const std::lock_guard lock(state().mutex);
  const auto found = state().allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == state().allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  record("free", {{"bytes", found->second.size}, {"device", found->second.device}});
  state().allocations.erase(found);
  std::free(memory);
  return CUDA_SUCCESS;
}

bool is_device_memory(CUdeviceptr address, size_t bytes) {
  return find_allocation(address, bytes) != nullptr;
}

// Both sides are host memory, but a device pointer must lie in an allocation.
CUresult copy(void* to, bool to_device, const void* from, bool from_device, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (to_device && !is_device_memory(reinterpret_cast<uintptr_t>(to), bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (from_device && !is_device_memory(reinterpret_cast<uintptr_t>(from), bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memmove(to, from, bytes);
  return CUDA_SUCCESS;
}

template <typename T>
CUresult fill(CUdeviceptr to, T value, size_t count) {
  const std::lock_guard lock(state().mutex);
  if (!is_device_memory(to, count * sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) static_cast<T*>(pointer(to))[i] = value;
  return CUDA_SUCCESS;
}

}  // namespace

SOFTGPU_API CUresult cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemAlloc_v2", &context)) return error;
  {
    const std::lock_guard lock(state().mutex);
    if (any_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  void* made = nullptr;
  const CUresult result = allocate(context, context->device, bytes, &made);
  *memory = reinterpret_cast<CUdeviceptr>(made);
  return result;
}

SOFTGPU_API CUresult cuMemFree_v2(CUdeviceptr memory) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemFree_v2", &context)) return error;
  return release(pointer(memory));
}

SOFTGPU_API CUresult cuMemAllocAsync(CUdeviceptr* memory, size_t bytes, CUstream stream) {
  if (const CUresult error = enter("cuMemAllocAsync")) return error;
  CUcontext context = nullptr;
  {
    const std::lock_guard lock(state().mutex);
    context = context_of(stream);
  }
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  void* made = nullptr;
  const CUresult result = allocate(context, context->device, bytes, &made);
  *memory = reinterpret_cast<CUdeviceptr>(made);
  return result;
}

SOFTGPU_API CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream) {
  if (const CUresult error = enter("cuMemFreeAsync")) return error;
  return release(pointer(memory));
}

SOFTGPU_API CUresult cuMemGetInfo_v2(size_t* available, size_t* total) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemGetInfo_v2", &context)) return error;
  const std::lock_guard lock(state().mutex);
  *total = *available = visible_gpus()[static_cast<size_t>(context->device)].memory;
  for (const auto& [address, allocation] : state().allocations) {
    if (allocation.device == context->device) *available -= allocation.size;
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemHostAlloc", &context)) return error;
  return allocate(context, -1, bytes, memory);
}

SOFTGPU_API CUresult cuMemFreeHost(void* memory) {
  if (const CUresult error = enter("cuMemFreeHost")) return error;
  return release(memory);
}

SOFTGPU_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemcpyHtoD_v2", &context)) return error;
  return copy(pointer(to), true, from, false, bytes);
}

SOFTGPU_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemcpyDtoH_v2", &context)) return error;
  return copy(to, false, pointer(from), true, bytes);
}

SOFTGPU_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemcpyDtoD_v2", &context)) return error;
  return copy(pointer(to), true, pointer(from), true, bytes);
}

SOFTGPU_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                          CUstream) {
  if (const CUresult error = enter("cuMemcpyHtoDAsync_v2")) return error;
  return copy(pointer(to), true, from, false, bytes);
}

SOFTGPU_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  if (const CUresult error = enter("cuMemcpyDtoHAsync_v2")) return error;
  return copy(to, false, pointer(from), true, bytes);
}

SOFTGPU_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                          CUstream) {
  if (const CUresult error = enter("cuMemcpyDtoDAsync_v2")) return error;
  return copy(pointer(to), true, pointer(from), true, bytes);
}

// Addresses of either kind, as in unified addressing.
SOFTGPU_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  if (const CUresult error = enter("cuMemcpyAsync")) return error;
  return copy(pointer(to), false, pointer(from), false, bytes);
}

SOFTGPU_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemcpy", &context)) return error;
  return copy(pointer(to), false, pointer(from), false, bytes);
}

SOFTGPU_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream) {
  if (const CUresult error = enter("cuMemsetD8Async")) return error;
  return fill(to, value, count);
}

SOFTGPU_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream) {
  if (const CUresult error = enter("cuMemsetD32Async")) return error;
  return fill(to, value, count);
}

SOFTGPU_API CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  constexpr int kContext = 1, kMemoryType = 2, kDevicePointer = 3, kHostPointer = 4, kOrdinal = 9;
  constexpr unsigned kHost = 1, kDevice = 2;
  if (const CUresult error = enter("cuPointerGetAttribute")) return error;
  const std::lock_guard lock(state().mutex);
  const Allocation* const allocation = find_allocation(address, 1);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case kContext:
      *static_cast<CUcontext*>(value) = allocation->context;
      break;
    case kMemoryType:
      *static_cast<unsigned*>(value) = allocation->device < 0 ? kHost : kDevice;
      break;
    case kDevicePointer:
      *static_cast<CUdeviceptr*>(value) = address;
      break;
    case kHostPointer:
      if (allocation->device >= 0) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(value) = pointer(address);
      break;
    case kOrdinal:
      *static_cast<int*>(value) = std::max(allocation->device, 0);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
