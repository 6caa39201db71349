// Finds out more about the torch in this process than its stable C interface tells. Each item may
// be missing, and what it serves is then done in another way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "bridge.h"
#include "shim.h"

namespace opdock::torch {

// Fills an integer tensor with random numbers of the device's default generator.
using Randint = AOTITorchError (*)(AtenTensorHandle out, int64_t low, int64_t high,
                                   const int64_t* sizes, int64_t num_sizes);

// Functions of torch's C++ libraries, found by name; NULL where a release has no such function.
// A handle is the address of an at::Tensor, which is what these take.
struct Functions {
  // Raises the version counter of a tensor that is written; throws for a tensor that was made in
  // inference mode, outside of it.
  void (*bump_version)(AtenTensorHandle tensor) = nullptr;
  bool (*requires_grad)(const void* impl) = nullptr;
  // Returns the tensor's tangent, which may be undefined.
  AtenTensorHandle (*tangent)(const void* impl, uint64_t level, AtenTensorHandle tensor) = nullptr;
  Randint randint = nullptr;
};
const Functions& functions();

// Such functions for GPUs. The first tensor on a GPU looks for them, as torch may load their
// libraries later than this one.
struct GpuFunctions {
  AOTITorchError (*current_stream)(int32_t device, void** stream) = nullptr;
  Randint randint = nullptr;
  bool is_rocm = false;  // torch's "cuda" devices are AMD's
};
const GpuFunctions& gpu_functions();

// Set by Python.
extern opdock_torch_python python;
extern opdock_torch_layout layout;

// The address of this thread's dispatch keys; NULL until find_thread_keys() has found it.
inline constinit thread_local const uint64_t* thread_keys = nullptr;
const uint64_t* find_thread_keys();

// Returns whether no mode, transform or recording of torch is active in this thread.
inline bool is_plain_thread() {
  const uint64_t* keys = thread_keys;
  if (keys == nullptr) [[unlikely]]
    keys = find_thread_keys();
  return keys != nullptr && keys[0] == 0;
}

// Says who has to see a tensor besides the op itself: nobody, a recorder of reverse mode, or
// Python.
enum class Need { kNothing, kRecord, kPython };

// Returns what has to see a tensor with autograd data.
Need need_of_differentiation(AtenTensorHandle tensor, const void* impl);

// Returns whether autograd would record a call with this tensor; false where torch does not show
// it.
bool requires_gradient(AtenTensorHandle tensor);

// Returns what has to see this tensor.
inline Need need_of(AtenTensorHandle tensor) {
  const auto word = [](const void* base, int64_t offset) {
    uint64_t value;
    std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
    return value;
  };
  const void* impl = reinterpret_cast<const void*>(word(tensor, 0));
  if ((word(impl, layout.keys) & ~layout.allowed) != 0) return Need::kPython;
  return word(impl, layout.grad) == 0 ? Need::kNothing : need_of_differentiation(tensor, impl);
}

}  // namespace opdock::torch
