// What the kernels take, on the GPU and on the CPU, filled in by dequantize.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace dequantize {

inline constexpr int kThreads = 256;  // of a block
inline constexpr int kVectors = 4;    // of 16 bytes of the result, of a thread

struct Params {
  const signed char* q;
  const float* scale;
  void* out;
  long long numel;
  long long group;  // elements for each scale, at least 1
  unsigned long long
      factor;   // for a division by `group`, if that is above 1, as for_elements() has
  int shift;    // one by its slots
  int even;     // what a thread has is of one group
  int aligned;  // out to 16 bytes, and q to as many elements
};

}  // namespace dequantize
