// Allocation of outputs by the host.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "call/call.h"
#include "call/memory.h"
#include "call/tensor_check.h"

namespace opdock {
namespace {

// The tensor is the first member, so that its address is the address of the whole struct.
struct OwnedTensor {
  opdock_tensor tensor{};
  int64_t shape[OPDOCK_MAX_NDIM];
  int64_t strides[OPDOCK_MAX_NDIM];
  void* memory = nullptr;  // the allocation that contains the data
  Driver* driver = nullptr;
  void* stream = nullptr;
};

uint64_t bytes_of(const opdock_output& layout) {
  uint64_t bytes = element_bytes(layout.dtype);
  for (int32_t i = 0; i < layout.ndim; ++i) bytes *= static_cast<uint64_t>(layout.shape[i]);
  return bytes;
}

}  // namespace

Status allocate_output(const Target& target, void* stream, const opdock_output& layout,
                       opdock_tensor** out) {
  std::unique_ptr<OwnedTensor> owned(new (std::nothrow) OwnedTensor);
  const uint64_t bytes = bytes_of(layout), alignment = std::max(layout.alignment, kAlignment);
  if (owned == nullptr) {
    return {OPDOCK_OUT_OF_MEMORY, "no host memory for an output; free some and try again"};
  }
  for (int32_t i = 0; i < layout.ndim; ++i) {
    owned->shape[i] = layout.shape[i];
  }
  set_strides(layout, owned->strides);
  owned->tensor.device = target.device;
  owned->tensor.ndim = layout.ndim;
  owned->tensor.dtype = layout.dtype;
  owned->tensor.shape = owned->shape;
  owned->tensor.strides = owned->strides;
  owned->stream = stream;
  if (bytes > 0 && target.driver != nullptr) {
    Status done =
        allocate_on_device(target, stream, bytes, alignment, &owned->memory, &owned->tensor.data);
    if (!done.ok()) return done;
    owned->driver = target.driver;
  } else if (bytes > 0) {
    owned->memory = owned->tensor.data = allocate_on_host(bytes, alignment);
    if (owned->memory == nullptr) {
      return {OPDOCK_OUT_OF_MEMORY, "no host memory of " + std::to_string(bytes) +
                                        " bytes for an output; free some and try again"};
    }
  }
  *out = &owned.release()->tensor;
  return {};
}

void free_output(opdock_tensor* tensor) {
  if (tensor == nullptr) return;
  std::unique_ptr<OwnedTensor> owned(reinterpret_cast<OwnedTensor*>(tensor));
  if (owned->driver != nullptr) {
    owned->driver->release(tensor->device.index, owned->stream, owned->memory);
  } else {
    std::free(owned->memory);
  }
}

}  // namespace opdock
