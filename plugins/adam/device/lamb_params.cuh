// Parameters of LAMB's kernels, filled in by lamb_gpu.cc, and how both divide a tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adam_params.cuh"

namespace lamb {

// Blocks of a tensor, at most: each of them adds up what all have found.
inline constexpr int kMaxParts = 512;

// Returns how many consecutive elements of a tensor with `numel` elements a block takes: a multiple
// of optimizer::kChunk.
OPDOCK_HOST_DEVICE long long part_of(long long numel) {
  const long long share = (numel + kMaxParts - 1) / kMaxParts;
  const long long chunks = (share + optimizer::kChunk - 1) / optimizer::kChunk;
  return (chunks < 4 ? 4 : chunks) * optimizer::kChunk;
}

struct alignas(8) Squares {
  float weight, change;  // sums of squares of weights, and of the changes before they are scaled
};

// Parameters of both kernels. A tensor without elements has one block.
struct Params {
  optimizer::TensorLists<2, 70> lists;  // states: averages of gradients, and of their squares
  adam::Begin begin;                    // its step is NULL except in the first launch
  Squares* squares;                     // one for each block of the launch
  float* ratios;                        // the launch's tensors' trust ratios
  optimizer::Factor<float> beta1, beta2;
  float rest1, rest2;  // 1 - beta1, 1 - beta2
  float eps, weight_decay;
  float min_coeff, max_coeff;
  float sign;               // -1 to maximise
  bool is_eps_inside_sqrt;  // change is divided by sqrt(square + eps), not by sqrt(square) + eps
};
static_assert(sizeof(Params) <= 4096);

// Returns the trust ratio of a tensor: |weights| / |change|, between both bounds, and 1 if one of
// the norms is 0. It is NaN if one of them is.
template <class T>
OPDOCK_HOST_DEVICE T trust_ratio(T weight_norm, T change_norm, T min_coeff, T max_coeff) {
  if (weight_norm == 0 || change_norm == 0) return 1;
  const T ratio = weight_norm / change_norm;
  return ratio < min_coeff ? min_coeff : ratio > max_coeff ? max_coeff : ratio;
}

}  // namespace lamb
