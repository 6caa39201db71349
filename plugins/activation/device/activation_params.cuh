// Parameters of the kernels, on the GPU and on the CPU, filled in by the host code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/columns.cuh"
#include "opdock/elements.cuh"

namespace activation {

enum Activation : int { kIdentity, kRelu, kGeluTanh, kGeluErf, kSilu };

// Places of the backward ops' tensors: the gradients of x and up are computed from that of out.
enum BackwardTensor : int { kGradX, kGradUp, kGrad, kOfX, kOfXBias, kOfUp, kOfUpBias };
inline constexpr int kBackwardTensors = 7;

struct BackwardParams {
  int act;
  int gated;  // there are an `up` and a gradient of it
  opdock::Elements<kBackwardTensors> at;
  opdock::ColumnSums<2> sums;  // over rows: the biases' gradients
};

}  // namespace activation
