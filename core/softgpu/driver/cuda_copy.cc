// CUDA's copies and fills.
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"
#include "memory.h"

using namespace softgpu;

namespace {

Copy to_device(CUdeviceptr to, const void* from, size_t bytes) {
  return {pointer(to), Side::kDevice, from, Side::kHost, bytes};
}
Copy to_host(void* to, CUdeviceptr from, size_t bytes) {
  return {to, Side::kHost, pointer(from), Side::kDevice, bytes};
}
Copy on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return {pointer(to), Side::kDevice, pointer(from), Side::kDevice, bytes};
}
// For calls with unified addresses: the addresses tell which side is the device.
Copy anywhere(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return {pointer(to), Side::kUnknown, pointer(from), Side::kUnknown, bytes};
}

// For synchronous calls, which use the current context's default stream.
CUresult copy_now(const char* function, const Copy& copy) {
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context(function, &context)) return error;
  Lock lock = lock_state();
  return copy_memory(&lock, find_stream(nullptr, context), copy, Wait::kSync);
}

CUresult copy_on(const char* function, CUstream handle, const Copy& copy) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream(function, handle, &stream)) return error;
  Lock lock = lock_state();
  return copy_memory(&lock, stream, copy, Wait::kAsync);
}

CUresult fill_on(const char* function, CUstream handle, CUdeviceptr to, unsigned value,
                 unsigned size, size_t count) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream(function, handle, &stream)) return error;
  const Lock lock = lock_state();
  return fill_memory(stream.get(), pointer(to), value, size, count);
}

}  // namespace

SOFTGPU_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_now("cuMemcpyHtoD_v2", to_device(to, from, bytes));
}

SOFTGPU_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoH_v2", to_host(to, from, bytes));
}

SOFTGPU_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoD_v2", on_device(to, from, bytes));
}

SOFTGPU_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpy", anywhere(to, from, bytes));
}

SOFTGPU_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                          CUstream stream) {
  return copy_on("cuMemcpyHtoDAsync_v2", stream, to_device(to, from, bytes));
}

SOFTGPU_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes,
                                          CUstream stream) {
  return copy_on("cuMemcpyDtoHAsync_v2", stream, to_host(to, from, bytes));
}

SOFTGPU_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                          CUstream stream) {
  return copy_on("cuMemcpyDtoDAsync_v2", stream, on_device(to, from, bytes));
}

SOFTGPU_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                   CUstream stream) {
  return copy_on("cuMemcpyAsync", stream, anywhere(to, from, bytes));
}

// Fills return without waiting, as the driver's do for device memory.
SOFTGPU_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return fill_on("cuMemsetD8_v2", nullptr, to, value, 1, count);
}

SOFTGPU_API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return fill_on("cuMemsetD16_v2", nullptr, to, value, 2, count);
}

SOFTGPU_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return fill_on("cuMemsetD32_v2", nullptr, to, value, 4, count);
}

SOFTGPU_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                     CUstream stream) {
  return fill_on("cuMemsetD8Async", stream, to, value, 1, count);
}

SOFTGPU_API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                                      CUstream stream) {
  return fill_on("cuMemsetD16Async", stream, to, value, 2, count);
}

SOFTGPU_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                      CUstream stream) {
  return fill_on("cuMemsetD32Async", stream, to, value, 4, count);
}
