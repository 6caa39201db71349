// The stand-in driver's state: contexts, streams, modules and memory. One mutex guards it all; the
// current context is the thread's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda_types.h"
#include "failures.h"
#include "image.h"
#include "record.h"

#define SOFTGPU_API extern "C" __attribute__((visibility("default")))

struct Context {
  CUdevice device = 0;
  int references = 0;  // of the primary context; it is active while there are any
};

struct Stream {
  CUcontext context = nullptr;
  bool capturing = false;
};

struct Function {
  std::string name;
  const softgpu::Image* image = nullptr;
  std::vector<softgpu::Parameter> parameters;
  CUmodule module = nullptr;  // NULL for a kernel of a library
  CUlibrary library = nullptr;
  std::map<int, int> attributes;  // cuFuncSetAttribute's
};

struct Module {
  softgpu::Image image;
  CUcontext context = nullptr;
  CUlibrary library = nullptr;  // whose module this is, or NULL
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Library {
  softgpu::Image image;
  std::map<CUdevice, std::unique_ptr<Module>> modules;  // made on demand
  std::map<std::string, std::unique_ptr<Function>> kernels;
};

namespace softgpu {

struct Allocation {
  uint64_t size = 0;
  CUdevice device = -1;  // -1: pinned host memory
  CUcontext context = nullptr;
};

struct State {
  std::mutex mutex;
  int init_pid = 0;  // the process that called cuInit; 0: none has
  std::atomic<CUresult> sticky{CUDA_SUCCESS};
  std::vector<Context> primary;  // one a device
  std::map<CUstream, std::unique_ptr<Stream>> streams;
  std::map<CUmodule, std::unique_ptr<Module>> modules;
  std::map<CUlibrary, std::unique_ptr<Library>> libraries;
  std::map<uintptr_t, Allocation> allocations;  // by address
};
State& state();

// This thread's stack of contexts; the last is current.
std::vector<CUcontext>& context_stack();
CUcontext current_context();

// What every entry point asks first: configured failure, then a sticky error, then whether cuInit
// was called in this very process (a fork after it leaves the driver unusable, as in the real one).
CUresult enter(const char* function);
// enter() for calls that need a current context; gives it.
CUresult enter_with_context(const char* function, CUcontext* context);

// The allocation that holds [address, address + size), or NULL. The mutex must be held.
const Allocation* find_allocation(uintptr_t address, uint64_t size);

// The stream's context; NULL and the handles 1 and 2 (legacy, per-thread) belong to the current
// one. NULL if there is no such stream. The mutex must be held.
CUcontext context_of(CUstream stream);
// Whether any stream is capturing. The mutex must be held.
bool any_capturing();

}  // namespace softgpu
