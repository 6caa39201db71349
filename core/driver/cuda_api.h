// The part of the CUDA driver interface that Opdock uses, declared here so that building needs no
// toolkit. Names and values are from the CUDA Driver API reference.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "driver/driver.h"

namespace opdock::cuda {

using Result = int;        // CUresult
using Device = int;        // CUdevice
using Context = void*;     // CUcontext
using Stream = void*;      // CUstream
using Library = void*;     // CUlibrary
using Module = void*;      // CUmodule
using Kernel = void*;      // CUkernel
using Function = void*;    // CUfunction; launches also accept a CUkernel
using Pointer = uint64_t;  // CUdeviceptr

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kNotSupported = 801;

enum Attribute : int {  // CUdevice_attribute
  kMaxThreadsPerBlock = 1,
  kMaxSharedPerBlock = 8,
  kWarpSize = 10,
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kMaxSharedPerBlockOptin = 97,
  kMemoryPoolsSupported = 115,
};
enum FunctionAttribute : int {  // CUfunction_attribute
  kFunctionSharedBytes = 1,     // static shared memory
  kFunctionPtxVersion = 5,      // architecture that the code was compiled for, such as 90
  kFunctionMaxDynamicShared = 8,
};

// CUlaunchAttribute: an id, and 64 bytes of value at offset 8.
struct LaunchAttribute {
  int id;
  int padding;
  union {
    int flag;
    uint32_t cluster[3];
    char bytes[64];
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
inline constexpr int kAttributeCooperative = 2;
inline constexpr int kAttributeCluster = 4;
inline constexpr int kAttributeProgrammatic = 6;  // ..._PROGRAMMATIC_STREAM_SERIALIZATION

struct LaunchConfig {  // CUlaunchConfig
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  uint32_t num_attributes;
};
static_assert(offsetof(LaunchConfig, stream) == 32 && sizeof(LaunchConfig) == 56);

// Functions of libcuda.so.1. The optional ones are NULL in drivers that lack them.
struct Api {
  Result (*cuInit)(unsigned);
  Result (*cuDriverGetVersion)(int*);
  Result (*cuGetErrorName)(Result, const char**);
  Result (*cuGetErrorString)(Result, const char**);
  Result (*cuDeviceGetCount)(int*);
  Result (*cuDeviceGet)(Device*, int);
  Result (*cuDeviceGetAttribute)(int*, int, Device);
  Result (*cuDeviceTotalMem)(size_t*, Device);
  Result (*cuDevicePrimaryCtxRetain)(Context*, Device);
  Result (*cuCtxGetCurrent)(Context*);
  Result (*cuCtxPushCurrent)(Context);
  Result (*cuCtxPopCurrent)(Context*);
  Result (*cuStreamGetCtx)(Stream, Context*);
  Result (*cuStreamIsCapturing)(Stream, int*);
  Result (*cuStreamSynchronize)(Stream);
  Result (*cuModuleLoadDataEx)(Module*, const void*, unsigned, int*, void**);
  Result (*cuModuleGetFunction)(Function*, Module, const char*);
  Result (*cuFuncGetAttribute)(int*, int, Function);
  Result (*cuFuncSetAttribute)(Function, int, int);
  Result (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, Stream, void**, void**);
  Result (*cuMemAlloc)(Pointer*, size_t);
  Result (*cuMemFree)(Pointer);
  // optional
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**);
  Result (*cuMemAllocAsync)(Pointer*, size_t, Stream);
  Result (*cuMemFreeAsync)(Pointer, Stream);
  Result (*cuLibraryLoadData)(Library*, const void*, int*, void**, unsigned, int*, void**,
                              unsigned);
  Result (*cuLibraryGetKernel)(Kernel*, Library, const char*);
  Result (*cuKernelGetFunction)(Function*, Kernel);
  Result (*cuKernelSetAttribute)(int, int, Kernel, Device);
  Result (*cuFuncLoad)(Function);
  Result (*cuFuncGetParamInfo)(Function, size_t, size_t*, size_t*);
  Result (*cuGetProcAddress)(const char*, void**, int, uint64_t, int*);

  // Returns whether images can be loaded once for all contexts (CUDA 12.0).
  bool has_libraries() const {
    return cuLibraryLoadData != nullptr && cuLibraryGetKernel != nullptr &&
           cuKernelGetFunction != nullptr && cuKernelSetAttribute != nullptr;
  }
};

// Opens libcuda.so.1 on the first call and remembers the outcome. *out is NULL if the library is
// not there or lacks a function. Does not call any of its functions. Thread-safe.
Status open_api(const Api** out);

// Returns the library's own symbol, or NULL; "cuMemAlloc" gives the function as CUDA 12.0 declares
// it.
void* find_symbol(const Api& api, const char* name);

// Converts a result of `function` to a status: OPDOCK_OK for success, else a status and a text with
// the driver's own name of the error.
Status status_of(const Api& api, Result result, const char* function);

}  // namespace opdock::cuda
