// What the plugin's own kernels of products take, on the GPU and on the CPU, filled in by tiles.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace linear {

inline constexpr int kTileThreads = 256;  // of a block
inline constexpr int kTileSide = 64;      // rows and columns of the result that one block makes

// Tensors whose rows the result's are.
enum TilePlace : int { kOutRows, kInputRows, kResidualRows, kTilePlaces };

struct TileParams {
  void* out;  // may be the residual
  const void* x;
  const void* residual;  // null: none
  const void* bias;      // null: none
  const void* weight;    // int8; without a scale of x's dtype
  const float* scale;
  int act;                                // an activation::Activation
  int vectors;                            // whole, aligned vectors; of int8 of 16, of one group
  int out_vectors;                        // out, residual and bias by vectors
  int by_parts;                           // a scale for each 64 inputs, otherwise one an output
  int team;                               // of one_row: warps that share an output, a power of 2
  long long inputs, outputs;              // of a row of x, of a row of the result
  long long input_stride, output_stride;  // of the weight, in elements: from one input to the next
  long long input_index, output_index;    // the same in the order that groups are counted in
  unsigned long long factor;              // for a division by the elements of a group …
  int shift;                              // … as for_elements() has it; -1: of one element
  opdock::Rows<kTilePlaces> rows;
};

}  // namespace linear
