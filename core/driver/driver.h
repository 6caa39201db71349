// A GPU driver behind one interface, NVIDIA's and AMD's.
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

// Opaque: what they point to is the driver's own.
using ModuleHandle = void*;
using FunctionHandle = void*;

// Thread-safe. The text of a failure names the call, the driver's own error name and number, and
// what to do. Methods that say so may create the device's primary context; none else does.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Backend backend() const = 0;

  // Facts of device `index`, valid until the process ends. Initialises the driver, no context.
  virtual Status facts(int index, const opdock_device_facts** out) = 0;
  // What the driver calls its architecture, "sm_90" or "gfx90a:sramecc+:xnack-"; as facts().
  virtual Status arch(int index, std::string* out) = 0;

  // Makes the context that belongs to (device, stream) current on this thread and remembers what
  // was current before; leave() restores it. May create the primary context. HIP has a current
  // device in the place of contexts; a stream of another device is OPDOCK_INVALID_ARGUMENT there.
  virtual Status enter(int index, void* stream, void** previous) = 0;
  virtual void leave(void* previous) = 0;

  // Loads an image for device `index` in the current context; kernels stay loaded.
  virtual Status load(int index, std::span<const uint8_t> image, ModuleHandle* out) = 0;
  virtual Status find(ModuleHandle module, const char* name, FunctionHandle* out) = 0;
  // The sizes of the kernel's parameters in bytes, valid until the process ends; NULL where the
  // driver does not tell.
  virtual const std::vector<uint32_t>* params(FunctionHandle function) = 0;
  virtual Status launch(FunctionHandle function, void* stream, const opdock_launch& launch) = 0;

  // Stream-ordered memory for workspaces and host-allocated outputs.
  virtual Status allocate(int index, void* stream, uint64_t bytes, void** out) = 0;
  virtual Status release(int index, void* stream, void* memory) = 0;

  virtual Status is_capturing(void* stream, bool* out) = 0;
  virtual Status synchronize(void* stream) = 0;
  virtual void* symbol(const char* name) = 0;
};

// The CUDA driver, opened from libcuda.so.1 on first use; *out: NULL if it cannot be. The pointer
// lives until the process ends.
Status cuda_driver(Driver** out);

// AMD's HIP runtime, opened on first use from where hip_library.h says; otherwise the same.
Status hip_driver(Driver** out);

// The driver for an OPDOCK_CUDA or OPDOCK_ROCM device type; there is none for others.
Status driver_for(Backend backend, Driver** out);

}  // namespace opdock
