// Parameters of the kernels, on the GPU and on the CPU, filled in by residual.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/elements.cuh"

namespace residual {

// Places of the tensors. kAttention may be absent, and so may the biases, the last one first.
enum Place : int { kOut, kHidden, kResidual, kAttention, kBias, kOtherBias, kPlaces };

// The formulas of the result.
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
