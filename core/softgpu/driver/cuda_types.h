// The CUDA driver's types and result codes, as in its reference manual, so that building the
// stand-in needs no toolkit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;

inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr CUresult CUDA_ERROR_INVALID_VALUE = 1;
inline constexpr CUresult CUDA_ERROR_OUT_OF_MEMORY = 2;
inline constexpr CUresult CUDA_ERROR_NOT_INITIALIZED = 3;
inline constexpr CUresult CUDA_ERROR_NO_DEVICE = 100;
inline constexpr CUresult CUDA_ERROR_INVALID_DEVICE = 101;
inline constexpr CUresult CUDA_ERROR_INVALID_IMAGE = 200;
inline constexpr CUresult CUDA_ERROR_INVALID_CONTEXT = 201;
inline constexpr CUresult CUDA_ERROR_NO_BINARY_FOR_GPU = 209;
inline constexpr CUresult CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222;
inline constexpr CUresult CUDA_ERROR_INVALID_HANDLE = 400;
inline constexpr CUresult CUDA_ERROR_NOT_FOUND = 500;
inline constexpr CUresult CUDA_ERROR_NOT_READY = 600;
inline constexpr CUresult CUDA_ERROR_NOT_SUPPORTED = 801;
inline constexpr CUresult CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;

struct CUuuid {
  unsigned char bytes[16];
};

// Handles point to the stand-in's own structs.
namespace softgpu {
struct DeviceContext;
struct Stream;
struct Event;
struct LoadedModule;
struct LoadedLibrary;
struct Function;
struct Graph;
}  // namespace softgpu
using CUcontext = softgpu::DeviceContext*;
using CUstream = softgpu::Stream*;
using CUevent = softgpu::Event*;
using CUmodule = softgpu::LoadedModule*;
using CUlibrary = softgpu::LoadedLibrary*;
using CUfunction = softgpu::Function*;
using CUkernel = softgpu::Function*;  // as in the driver, launches accept either
using CUgraph = softgpu::Graph*;      // a graph and its instance have the same type
using CUgraphExec = softgpu::Graph*;

struct ClusterDimension {
  unsigned x, y, z;
};

struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int value;
    ClusterDimension cluster;
  };
};
static_assert(sizeof(CUlaunchAttribute) == 72);

struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(offsetof(CUlaunchConfig, stream) == 32 && sizeof(CUlaunchConfig) == 56);
