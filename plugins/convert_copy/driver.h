// Calls functions of a GPU driver that the host's table does not wrap, for CUDA and HIP.
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
  kEventQuery,     // (void* event): returns 0 or kNotReady
  kEventWait,      // (void* event)
  kStreamWait,     // (void* stream)
  kErrorName,      // CUDA: (int result, const char** name); HIP: (int result), returns the name
  kGetContext,     // CUDA only, as all that follow: (void** context)
  kGetDevice,      // (int* device), the current context's device
  kPrimaryState,   // (int device, unsigned* flags, int* is_active)
  kPrimaryRetain,  // (void** context, int device)
  kCount
};

inline constexpr int kNotReady = 600;  // error code of both drivers

class Driver {
 public:
  // Returns the driver of the call's device, which is a GPU. Throws an Error when a function is
  // missing.
  static const Driver& of(const opdock::Call& call);

  // Calls the function and returns the driver's result. The arguments must have exactly the types
  // that the comment next to the function's name lists. A device address is a pointer for HIP and
  // an integer of the same size for CUDA; both are passed alike on every platform that has GPUs.
  template <class... Args>
  int call(Function function, Args... args) const {
    return reinterpret_cast<int (*)(Args...)>(functions_[static_cast<size_t>(function)])(args...);
  }
  // Calls the function and throws an Error if its result is not 0.
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
