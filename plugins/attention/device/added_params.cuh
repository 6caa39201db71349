// Parameters of the kernels for the gradient of a tensor that is added to attention's scores, on
// the GPU and on the CPU, filled in by attention_added.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backward_params.cuh"

namespace attention {

// The gradient is [batch, head, query, key]. A dimension of it that is 1 is a sum over all that the
// scores have there; sums[] says so for each, also where the scores have 1 as well.
struct AddedParams {
  BackwardParams b;  // without grad_q, grad_k and grad_v
  void* out;
  long long strides[4];  // of `out`, 0 for a sum
  int sums[4];
  int wide;  // 1: out is float; 0: of the queries' type
  int batches;

  // Return how many elements `out` has in a dimension of which the scores have `of`.
  OPDOCK_HOST_DEVICE int count(int dim, int of) const { return sums[dim] ? 1 : of; }
};

// Threads of a block, and the queries and keys of its tile of scores, a score for each thread.
inline constexpr int kAddedThreads = 256;
inline constexpr int kAddedTile = 16;
// Returns the bytes of shared memory of a block with tensor cores, whose tile has kTileVectors
// queries and kStreamVectors keys: two stages of q, its gradient, k and v.
OPDOCK_HOST_DEVICE constexpr int added_tile_bytes(int size) {
  return 2 * 2 * (kTileVectors + kStreamVectors) * size * 2;
}

}  // namespace attention
