// One interface for the GPU drivers of NVIDIA and AMD.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "note/note.h"
#include "opdock/plugin.h"

namespace opdock {

// Opaque handles: each driver defines what they point to.
using ModuleHandle = void*;
using FunctionHandle = void*;

// Thread-safe. The text of a failure names the call, the driver's own error name and number, and
// what to do. Only methods whose comments say so may create the device's primary context.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Backend backend() const = 0;

  // Returns the facts of device `index`, valid until the process ends. Initialises the driver, but
  // creates no context.
  virtual Status facts(int index, const opdock_device_facts** out) = 0;
  // Returns the driver's name of the device's architecture, "sm_90" or "gfx90a:sramecc+:xnack-".
  // Initialises the driver as facts() does.
  virtual Status arch(int index, std::string* out) = 0;

  // Makes the context that belongs to (device, stream) current on this thread and stores the
  // previous one, which leave() restores. May create the primary context. HIP has a current device
  // instead of contexts; there a stream of another device gives OPDOCK_INVALID_ARGUMENT.
  virtual Status enter(int index, void* stream, void** previous) = 0;
  virtual void leave(void* previous) = 0;

  // Loads an image for device `index` in the current context. It stays loaded.
  virtual Status load(int index, std::span<const uint8_t> image, ModuleHandle* out) = 0;
  virtual Status find(ModuleHandle module, const char* name, FunctionHandle* out) = 0;
  // Returns the sizes of the kernel's parameters in bytes, valid until the process ends; NULL if
  // the driver does not report them.
  virtual const std::vector<uint32_t>* params(FunctionHandle function) = 0;
  virtual Status launch(FunctionHandle function, void* stream, const opdock_launch& launch) = 0;

  // Allocates and releases stream-ordered memory, for workspaces and for outputs that the host
  // allocates. Memory that is released while its stream is captured, and that was not allocated in
  // the capture, is freed by the next allocation or release on the stream after the capture.
  virtual Status allocate(int index, void* stream, uint64_t bytes, void** out) = 0;
  virtual Status release(int index, void* stream, void* memory) = 0;

  virtual Status is_capturing(void* stream, bool* out) = 0;
  virtual Status synchronize(void* stream) = 0;
  virtual void* symbol(const char* name) = 0;
};

// Returns the CUDA driver. The first call opens libcuda.so.1; *out is NULL if that fails. The
// pointer is valid until the process ends.
Status cuda_driver(Driver** out);

// Does the same for AMD's HIP runtime; hip_library.h says which copy it opens.
Status hip_driver(Driver** out);

// Returns the driver for an OPDOCK_CUDA or OPDOCK_ROCM device type; other types have none.
Status driver_for(Backend backend, Driver** out);

}  // namespace opdock
