// CUDA's device memory and pinned memory, and queries about an address.
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"
#include "memory.h"

using namespace softgpu;

SOFTGPU_API CUresult cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemAlloc_v2", &context)) return error;
  Lock lock = lock_state();
  void* made = nullptr;
  const CUresult result = allocate_memory(&lock, context, bytes, "cuMemAlloc_v2", &made);
  *memory = reinterpret_cast<CUdeviceptr>(made);
  return result;
}

SOFTGPU_API CUresult cuMemFree_v2(CUdeviceptr memory) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemFree_v2", &context)) return error;
  Lock lock = lock_state();
  return free_memory(&lock, pointer(memory), false);
}

SOFTGPU_API CUresult cuMemAllocAsync(CUdeviceptr* memory, size_t bytes, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error =
          enter_with_stream("cuMemAllocAsync", handle, &stream, CUDA_ERROR_INVALID_CONTEXT)) {
    return error;
  }
  Lock lock = lock_state();
  void* made = nullptr;
  const CUresult result = allocate_ordered(&lock, stream.get(), bytes, "cuMemAllocAsync", &made);
  *memory = reinterpret_cast<CUdeviceptr>(made);
  return result;
}

SOFTGPU_API CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuMemFreeAsync", handle, &stream)) return error;
  const Lock lock = lock_state();
  return free_ordered(stream.get(), pointer(memory));
}

// Exists only here, not in any driver: the kernels that this thread launches next must not write to
// these ranges.
SOFTGPU_API CUresult cuSoftReadOnly(const CUdeviceptr* addresses, const uint64_t* bytes,
                                    unsigned count, const char* what) {
  return set_read_only(reinterpret_cast<const void* const*>(addresses), bytes, count, what);
}

SOFTGPU_API CUresult cuMemGetInfo_v2(size_t* available, size_t* total) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemGetInfo_v2", &context)) return error;
  const Lock lock = lock_state();
  *total = context->gpu->memory;
  *available = *total - context->used;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuMemHostAlloc", &context)) return error;
  const Lock lock = lock_state();
  return allocate_pinned(context, bytes, "cuMemHostAlloc", memory);
}

SOFTGPU_API CUresult cuMemFreeHost(void* memory) {
  if (const CUresult error = enter("cuMemFreeHost")) return error;
  Lock lock = lock_state();
  return free_memory(&lock, memory, true);
}

SOFTGPU_API CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  constexpr int kContext = 1, kMemoryType = 2, kDevicePointer = 3, kHostPointer = 4, kOrdinal = 9;
  constexpr unsigned kHost = 1, kDevice = 2;
  if (const CUresult error = enter("cuPointerGetAttribute")) return error;
  const Lock lock = lock_state();
  const Memory* const memory = find_memory(address, 1);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case kContext:
      *static_cast<CUcontext*>(value) = memory->context;
      break;
    case kMemoryType:
      *static_cast<unsigned*>(value) = memory->pinned ? kHost : kDevice;
      break;
    case kDevicePointer:
      *static_cast<CUdeviceptr*>(value) = address;
      break;
    case kHostPointer:
      if (!memory->pinned) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(value) = pointer(address);
      break;
    case kOrdinal:
      *static_cast<int*>(value) = memory->pinned ? 0 : memory->context->device;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
