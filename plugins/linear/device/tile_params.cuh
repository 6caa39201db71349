// Parameters of the plugin's own product kernels, on the GPU and on the CPU, filled in by tiles.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace linear {

inline constexpr int kTileThreads = 256;  // threads per block
inline constexpr int kTileSide = 64;      // rows and columns of the result per block

// Tensors that have a row for each row of the result.
enum TilePlace : int { kOutRows, kInputRows, kResidualRows, kTilePlaces };

struct TileParams {
  void* out;  // may be the residual
  const void* x;
  const void* residual;  // null: no residual
  const void* bias;      // null: no bias
  const void* weight;    // int8, or if there is no scale, x's dtype
  const float* scale;
  int act;      // an activation::Activation
  int vectors;  // everything consists of whole, aligned vectors; for int8, of 16 elements of one
                // group
  int out_vectors;            // out, residual and bias can be accessed by vectors
  int by_parts;               // 1: a scale for each 64 inputs; 0: one per output
  int team;                   // for one_row: warps that share an output, a power of 2
  long long inputs, outputs;  // elements of a row of x, and of a row of the result
  long long input_stride,
      output_stride;  // strides of the weight, in elements, from one input or output to the next
  long long input_index, output_index;  // the same in the order in which groups are counted
  // For a division by the elements of a group, as for_elements() divides; shift -1: groups have
  // one element.
  unsigned long long factor;
  int shift;
  opdock::Rows<kTilePlaces> rows;
};

}  // namespace linear
