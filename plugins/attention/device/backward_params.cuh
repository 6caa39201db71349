// Parameters of the kernels of attention's gradients, on the GPU and on the CPU, filled in by
// attention_backward.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_params.cuh"

namespace attention {

struct BackwardParams {
  Params
      p;  // the arguments of the forward pass; p.row_tiles is the number of tiles of either kernel
  Heads grad, result, grad_q, grad_k, grad_v;
  // Distances between a head's elements: of grad 0 if it is expanded, of a result that is the
  // caller's any.
  long long grad_element, grad_k_element;
  RowNumbers lse, grad_lse;  // lse.data is NULL on the CPU only: there it is computed again
  float scale;               // p.scale, not multiplied by log2(e)
  // [batch, head, query, 2], for sequences [head, query of all, 2]; float on a GPU and double on
  // the CPU: what is subtracted from the scores of a row, infinity for a row that sees nothing; and
  // the sum of grad * result - grad_lse.
  void* rows;
  int grads_by_vectors;  // grad_q, grad_k and grad_v can be written by 16 bytes

  // Returns where a row's two numbers are in `rows`.
  OPDOCK_HOST_DEVICE long long row_at(long long b, long long head, long long query) const {
    return 2 * ((p.sequences > 0 ? b : b * p.heads * p.queries) + head * p.queries + query);
  }
};

// Threads of a block that computes the numbers of rows. Eight threads share a row.
inline constexpr int kRowThreads = 128;
// Rows, or keys, of a block without tensor cores: what is in registers at a time.
OPDOCK_HOST_DEVICE constexpr int backward_rows(int size) {
  return 256 / size;
}
// Threads of a block with tensor cores, the rows or keys that it keeps, and those that pass by at a
// time.
inline constexpr int kTileThreads = 128;
inline constexpr int kTileVectors = kTileThreads / 2;
inline constexpr int kStreamVectors = 32;
// Returns the bytes of shared memory of such a block: two tensors' vectors, two stages of the
// stream, and 16 bytes for each of its rows.
OPDOCK_HOST_DEVICE constexpr int backward_tile_bytes(int size) {
  return (2 * kTileVectors + 4 * kStreamVectors) * size * 2 + 2 * kStreamVectors * 16;
}

}  // namespace attention
