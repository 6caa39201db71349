// Parameters of the activations' kernels, on the GPU and on the CPU, filled in by gates.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/elements.cuh"

namespace ragged {

enum Activation : int { kNone, kRelu, kGelu, kGeluTanh, kSilu };

struct BiasParams {
  opdock::Elements<3> elements;  // out, x, bias
  int activation;                // an Activation
};

struct PairParams {
  const void *x, *bias;  // bias NULL: none
  void* out;
  long long rows, columns, x_row;  // columns of `out`
  int activation;
  int by_vectors;
  int column_blocks;  // blocks of the grid that share a row
};
inline constexpr int kPairThreads = 256;

}  // namespace ragged
