// The part of AMD's HIP runtime that Opdock uses, declared here so that building needs no ROCm.
// Names and values are from the HIP API reference; HIP 5.2 to 7 agree on all of them, except where
// a comment says otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "driver/driver.h"

namespace opdock::hip {

using Result = int;      // hipError_t
using Stream = void*;    // hipStream_t
using Module = void*;    // hipModule_t
using Function = void*;  // hipFunction_t

inline constexpr Result kSuccess = 0;

enum Attribute : int {  // hipDeviceAttribute_t
  kL2Bytes = 19,
  kMaxThreadsPerBlock = 56,
  kMultiprocessors = 63,
  kMaxSharedPerBlock = 74,
  kWarpSize = 87,
  kMemoryPoolsSupported = 88,
};

// hipDeviceProp_t, of which only the target ID is read. HIP 6 changed its layout and gave the
// function that fills it a new symbol; libraries of HIP 6 keep the old layout under the old symbol.
inline constexpr size_t kPropertiesBytes = 4096;   // larger than any layout
inline constexpr size_t kTargetIdBytes = 256;      // gcnArchName, "gfx90a:sramecc+:xnack-"
inline constexpr size_t kTargetIdAt = 1160;        // hipGetDevicePropertiesR0600
inline constexpr size_t kTargetIdAtBefore6 = 396;  // hipGetDeviceProperties

// The library's functions. The optional ones are NULL in versions that lack them.
struct Api {
  Result (*hipInit)(unsigned);
  const char* (*hipGetErrorName)(Result);
  const char* (*hipGetErrorString)(Result);
  Result (*hipGetLastError)();
  Result (*hipGetDeviceCount)(int*);
  Result (*hipGetDevice)(int*);
  Result (*hipSetDevice)(int);
  Result (*hipDeviceGetAttribute)(int*, int, int);
  Result (*hipDeviceTotalMem)(size_t*, int);
  Result (*hipStreamIsCapturing)(Stream, int*);
  Result (*hipStreamSynchronize)(Stream);
  Result (*hipModuleLoadData)(Module*, const void*);
  Result (*hipModuleGetFunction)(Function*, Module, const char*);
  Result (*hipModuleLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, Stream, void**, void**);
  Result (*hipMalloc)(void**, size_t);
  Result (*hipFree)(void*);
  // one of the two
  Result (*hipGetDevicePropertiesR0600)(void*, int);
  Result (*hipGetDeviceProperties)(void*, int);
  // optional
  Result (*hipStreamGetDevice)(Stream, int*);                               // HIP 5.6
  Result (*hipModuleLaunchCooperativeKernel)(Function, unsigned, unsigned,  // HIP 5.5
                                             unsigned, unsigned, unsigned, unsigned, unsigned,
                                             Stream, void**);
  Result (*hipMallocAsync)(void**, size_t, Stream);  // HIP 5.2
  Result (*hipFreeAsync)(void*, Stream);
};

// Opens the library (hip_library.h) on the first call and remembers the outcome. *out is NULL if
// the library is not there or lacks a function. Does not call any of its functions. Thread-safe.
Status open_api(const Api** out);

// Returns the library's own symbol, or NULL.
void* find_symbol(const char* name);

// Returns the target ID of device `index` as HIP reports it; "" if that fails, see *result.
std::string target_id(const Api& api, int index, Result* result);

// Converts a result of `function` to a status: OPDOCK_OK for success, else a status and a text with
// HIP's own name of the error. Also clears HIP's last error of this thread, so that other code does
// not take it for its own.
Status status_of(const Api& api, Result result, const char* function);

}  // namespace opdock::hip
