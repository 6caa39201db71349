// Parameters of the elementwise kernels, on the GPU and on the CPU, filled in by elements.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/elements.cuh"

namespace linear {

// Places of the tensors: out = first * act(second), or act(out + bias) + second.
enum Place : int { kResult, kFirst, kSecond, kBias, kElementPlaces };

struct ElementParams {
  int act;  // an activation::Activation
  opdock::Elements<kElementPlaces> at;
};

}  // namespace linear
