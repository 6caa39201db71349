// What the kernels take, on the GPU and on the CPU, filled in by dropout.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/philox.cuh"

namespace dropout {

inline constexpr int kThreads = 256;  // of a block

// Which numbers keep their elements: those of at least p * 2^32, which for p = 1 is none.
struct Threshold {
  unsigned int least;  // above 0 where it is not reachable
  bool is_reachable;   // where it is not, nothing is kept, whatever a mask says

  OPDOCK_HOST_DEVICE bool keeps(unsigned int number) const {
    return is_reachable && number >= least;
  }
};

struct Params {
  const void* x;  // in the backward op the gradient
  unsigned char* mask;
  void* out;
  long long numel;
  double scale;       // of what is kept
  float float_scale;  // the same, for elements of 32 bits and less
  // Whether x and out are aligned to 16 bytes, and mask to 8.
  bool is_aligned;
  Threshold threshold;
  opdock::RandomSource random;  // of the forward op
};

}  // namespace dropout
