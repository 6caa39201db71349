// Parameters of the kernels, on the GPU and on the CPU, filled in by dequantize_gpu.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace dequantize {

inline constexpr int kThreads = 256;  // threads per block
inline constexpr int kVectors = 4;    // vectors of 16 bytes of the result per thread

struct Params {
  const signed char* q;
  const float* scale;
  void* out;
  long long numel;
  long long group;  // elements for each scale, at least 1
  // They divide by `group`, if that is above 1, as for_elements() divides by its slots.
  unsigned long long factor;
  int shift;
  int even;     // all elements of a vector are in one group
  int aligned;  // out is aligned to 16 bytes, and q to as many elements
};

}  // namespace dequantize
