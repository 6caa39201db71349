// HIP's memory, copies and fills.
// SPDX-License-Identifier: Apache-2.0
#include "hip.h"
#include "memory.h"

using namespace softgpu;
using namespace softgpu::hip;

namespace {

// hipMemcpyKind
constexpr int kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

Copy copy_of(void* to, const void* from, size_t bytes, int kind) {
  const auto side = [&](bool device) {
    if (kind < kHostToHost || kind > kDeviceToDevice) return Side::kUnknown;
    return device ? Side::kDevice : Side::kHost;
  };
  return {to, side(kind == kHostToDevice || kind == kDeviceToDevice), from,
          side(kind == kDeviceToHost || kind == kDeviceToDevice), bytes};
}

Result copy_now(const char* function, const Copy& copy) {
  return on_locked_device(function, [&](DeviceContext* context, Lock* lock) {
    return copy_memory(lock, find_stream(nullptr, context), copy, Wait::kDone);
  });
}

Result copy_on(const char* function, Stream* handle, const Copy& copy) {
  return on_stream(function, handle, [&](const std::shared_ptr<Stream>& stream, Lock* lock) {
    return copy_memory(lock, stream, copy, Wait::kAsync);
  });
}

Result fill_on(const char* function, Stream* handle, void* to, uint32_t value, unsigned size,
               size_t count) {
  return on_stream(function, handle, [&](const std::shared_ptr<Stream>& stream, Lock*) {
    return fill_memory(stream.get(), to, value, size, count);
  });
}

// hipMemset and its variants wait for completion, also for device memory.
Result fill_now(const char* function, void* to, uint32_t value, unsigned size, size_t count) {
  return on_stream(function, nullptr,
                   [&](const std::shared_ptr<Stream>& stream, Lock* lock) -> Result {
                     if (const Result error = fill_memory(stream.get(), to, value, size, count)) {
                       return error;
                     }
                     wait_for_stream(lock, stream);
                     return stream->context->failed;
                   });
}

}  // namespace

// Exists only here, not in any driver: the kernels that this thread launches next must not write to
// these ranges.
SOFTGPU_API Result hipSoftReadOnly(const void* const* addresses, const uint64_t* bytes,
                                   unsigned count, const char* what) {
  return set_read_only(addresses, bytes, count, what);
}

SOFTGPU_API Result hipMalloc(void** memory, size_t bytes) {
  return on_locked_device("hipMalloc", [&](DeviceContext* context, Lock* lock) {
    if (!memory) return kInvalidValue;
    *memory = nullptr;
    return bytes == 0 ? kSuccess : allocate_memory(lock, context, bytes, "hipMalloc", memory);
  });
}

SOFTGPU_API Result hipFree(void* memory) {
  return on_locked_device(
      "hipFree", [&](DeviceContext*, Lock* lock) { return free_memory(lock, memory, false); });
}

SOFTGPU_API Result hipMallocAsync(void** memory, size_t bytes, Stream* handle) {
  return on_stream(
      "hipMallocAsync", handle, [&](const std::shared_ptr<Stream>& stream, Lock* lock) {
        *memory = nullptr;
        return bytes == 0 ? kSuccess
                          : allocate_ordered(lock, stream.get(), bytes, "hipMallocAsync", memory);
      });
}

SOFTGPU_API Result hipFreeAsync(void* memory, Stream* handle) {
  return on_stream("hipFreeAsync", handle, [&](const std::shared_ptr<Stream>& stream, Lock*) {
    return free_ordered(stream.get(), memory);
  });
}

SOFTGPU_API Result hipHostMalloc(void** memory, size_t bytes, unsigned) {
  return on_locked_device("hipHostMalloc", [&](DeviceContext* context, Lock*) {
    return allocate_pinned(context, bytes, "hipHostMalloc", memory);
  });
}

SOFTGPU_API Result hipHostFree(void* memory) {
  return on_locked_device(
      "hipHostFree", [&](DeviceContext*, Lock* lock) { return free_memory(lock, memory, true); });
}

SOFTGPU_API Result hipMemGetInfo(size_t* available, size_t* total) {
  return on_locked_device("hipMemGetInfo", [&](DeviceContext* context, Lock*) {
    *total = context->gpu->memory;
    *available = *total - context->used;
    return kSuccess;
  });
}

SOFTGPU_API Result hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return copy_now("hipMemcpy", copy_of(to, from, bytes, kind));
}

SOFTGPU_API Result hipMemcpyHtoD(void* to, void* from, size_t bytes) {
  return copy_now("hipMemcpyHtoD", copy_of(to, from, bytes, kHostToDevice));
}

SOFTGPU_API Result hipMemcpyDtoH(void* to, void* from, size_t bytes) {
  return copy_now("hipMemcpyDtoH", copy_of(to, from, bytes, kDeviceToHost));
}

SOFTGPU_API Result hipMemcpyDtoD(void* to, void* from, size_t bytes) {
  return copy_now("hipMemcpyDtoD", copy_of(to, from, bytes, kDeviceToDevice));
}

SOFTGPU_API Result hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind,
                                  Stream* stream) {
  return copy_on("hipMemcpyAsync", stream, copy_of(to, from, bytes, kind));
}

// Copies in stream order and waits for the copy.
SOFTGPU_API Result hipMemcpyWithStream(void* to, const void* from, size_t bytes, int kind,
                                       Stream* handle) {
  return on_stream("hipMemcpyWithStream", handle,
                   [&](const std::shared_ptr<Stream>& stream, Lock* lock) {
                     return copy_memory(lock, stream, copy_of(to, from, bytes, kind), Wait::kDone);
                   });
}

SOFTGPU_API Result hipMemcpyHtoDAsync(void* to, void* from, size_t bytes, Stream* stream) {
  return copy_on("hipMemcpyHtoDAsync", stream, copy_of(to, from, bytes, kHostToDevice));
}

SOFTGPU_API Result hipMemcpyDtoHAsync(void* to, void* from, size_t bytes, Stream* stream) {
  return copy_on("hipMemcpyDtoHAsync", stream, copy_of(to, from, bytes, kDeviceToHost));
}

SOFTGPU_API Result hipMemcpyDtoDAsync(void* to, void* from, size_t bytes, Stream* stream) {
  return copy_on("hipMemcpyDtoDAsync", stream, copy_of(to, from, bytes, kDeviceToDevice));
}

SOFTGPU_API Result hipMemset(void* to, int value, size_t bytes) {
  return fill_now("hipMemset", to, static_cast<uint8_t>(value), 1, bytes);
}

SOFTGPU_API Result hipMemsetD8(void* to, unsigned char value, size_t count) {
  return fill_now("hipMemsetD8", to, value, 1, count);
}

SOFTGPU_API Result hipMemsetD16(void* to, unsigned short value, size_t count) {
  return fill_now("hipMemsetD16", to, value, 2, count);
}

SOFTGPU_API Result hipMemsetD32(void* to, int value, size_t count) {
  return fill_now("hipMemsetD32", to, static_cast<uint32_t>(value), 4, count);
}

SOFTGPU_API Result hipMemsetAsync(void* to, int value, size_t bytes, Stream* stream) {
  return fill_on("hipMemsetAsync", stream, to, static_cast<uint8_t>(value), 1, bytes);
}

SOFTGPU_API Result hipMemsetD8Async(void* to, unsigned char value, size_t count, Stream* stream) {
  return fill_on("hipMemsetD8Async", stream, to, value, 1, count);
}

SOFTGPU_API Result hipMemsetD16Async(void* to, unsigned short value, size_t count, Stream* stream) {
  return fill_on("hipMemsetD16Async", stream, to, value, 2, count);
}

SOFTGPU_API Result hipMemsetD32Async(void* to, int value, size_t count, Stream* stream) {
  return fill_on("hipMemsetD32Async", stream, to, static_cast<uint32_t>(value), 4, count);
}
