// The functions of a GPU's driver that the host's table does not wrap, CUDA's and HIP's alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/plugin.hpp>

namespace convert_copy {

enum class Function {
  kHostAlloc,    // (void** memory, size_t bytes, unsigned flags)
  kHostFree,     // (void* memory)
  kToDevice,     // (void* to, const void* from, size_t bytes, void* stream)
  kToHost,       // (void* to, const void* from, size_t bytes, void* stream)
  kEventCreate,  // (void** event, unsigned flags)
  kEventDestroy,
  kEventRecord,    // (void* event, void* stream)
  kEventQuery,     // (void* event): 0 or kNotReady
  kEventWait,      // (void* event)
  kStreamWait,     // (void* stream)
  kErrorName,      // CUDA: (int result, const char** name); HIP: (int result), gives the name
  kGetContext,     // CUDA, as all below: (void** context)
  kGetDevice,      // (int* device), the current context's
  kPrimaryState,   // (int device, unsigned* flags, int* is_active)
  kPrimaryRetain,  // (void** context, int device)
  kCount
};

inline constexpr int kNotReady = 600;  // of both drivers

class Driver {
 public:
  // That of the call's device, which is a GPU. Throws an Error where a function is missing.
  static const Driver& of(const opdock::Call& call);

  // Calls the function with arguments of just the types that stand beside its name, and gives what
  // the driver answers. An address on the device is a pointer to HIP and an integer of that size to
  // CUDA: the same to both where GPUs are.
  template <class... Args>
  int call(Function function, Args... args) const {
    return reinterpret_cast<int (*)(Args...)>(functions_[static_cast<size_t>(function)])(args...);
  }
  // Throws an Error if that is not 0.
  template <class... Args>
  void require(Function function, Args... args) const {
    if (const int result = call(function, args...)) fail(function, result);
  }
  [[noreturn]] void fail(Function function, int result) const;

  bool is_cuda() const { return is_cuda_; }

 private:
  explicit Driver(const opdock::Call& call);
  const char* name_of(Function function) const;
  const char* error_name(int result) const;

  bool is_cuda_;
  void* functions_[static_cast<size_t>(Function::kCount)];
};

}  // namespace convert_copy
