// What the kernels take, on the GPU and on the CPU, filled in by residual.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/elements.cuh"

namespace residual {

// Places of the tensors. Those that are not there: kAttention, and the biases from the last one on.
enum Place : int { kOut, kHidden, kResidual, kAttention, kBias, kOtherBias, kPlaces };

// What becomes of them.
enum Kind : int {
  kPlain,     // hidden + (residual + biases) * factor
  kInside,    // hidden + (residual + attention + biases) * factor
  kOutside,   // hidden + attention + (residual + biases) * factor
  kWeighted,  // hidden * kBias + residual * kOtherBias
};

struct Params {
  int kind;  // a Kind
  float factor;
  opdock::Elements<kPlaces> at;
};

}  // namespace residual
