// Parameters of the kernels, on the GPU and on the CPU, filled in by dropout.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/philox.cuh"

namespace dropout {

inline constexpr int kThreads = 256;  // threads per block

// An element is kept if its number is at least p * 2^32, which no number is for p = 1.
struct Threshold {
  unsigned int least;  // above 0 if the threshold is not reachable
  bool is_reachable;   // false: nothing is kept, even if the mask says so

  OPDOCK_HOST_DEVICE bool keeps(unsigned int number) const {
    return is_reachable && number >= least;
  }
};

struct Params {
  const void* x;         // for the backward op, the gradient
  const void* residual;  // for dropout_add only
  unsigned char* mask;
  void* out;
  long long numel;
  double scale;       // factor of the kept elements
  float float_scale;  // the same factor, for elements of 32 bits or fewer
  // Whether x, residual and out are aligned to 16 bytes, and mask to 8.
  bool is_aligned;
  Threshold threshold;
  opdock::RandomSource random;  // for the forward op only
};

}  // namespace dropout
