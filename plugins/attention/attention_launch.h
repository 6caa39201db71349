// Decides how attention is launched on a GPU: with which kernel, and over how many blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <opdock/row_op.hpp>

#include "device/attention_params.cuh"

namespace attention {

// Head sizes that kernels are compiled for.
using HeadSizes = opdock::KernelNumbers<64, 128, 256>;

inline int64_t divide_up(int64_t number, int64_t by) {
  return (number + by - 1) / by;
}

enum class Kernel { kDecode, kPrompt, kPromptByColumns, kPlain, kColumns };

struct Choice {
  Kernel kernel;
  int rows;  // rows of a tile
  int size;  // head size that the kernel is compiled for: 64, 128 or 256
  int row_tiles, splits, part;
  bool by_vectors;
};

// Returns how many blocks have a tile each of `count` rows or keys. For sequences there are some to
// spare, as Params::first_tile() numbers tiles.
inline int64_t tiles_of(const Params& p, int64_t count, int64_t tile_size) {
  if (p.sequences == 0 || count == 0) return divide_up(count, tile_size);
  return count / tile_size + p.sequences;
}
// Returns whether kernels can access all heads of the tensors [batch, token, head, element] by 16
// bytes.
bool fits_vectors(std::initializer_list<opdock::Tensor> tensors);
// Chooses the launch while planning. p: as make_params() fills it in. Reads no tensor's elements.
Choice choose(const opdock::Plan& plan, opdock::Tensor q, opdock::Tensor k, opdock::Tensor v,
              const Params& p);
// Returns the size of the workspace for the partial results of the splits.
uint64_t workspace_bytes(const Choice& choice, const Params& p, int64_t batch);
// Fills in the rest of p and launches the kernels. All forms of attention on a GPU come through
// here, and their gradients through launch_backward(): these two would ask a library first. p.out
// and p.out_by_vectors are filled in. workspace: memory of workspace_bytes().
void launch(opdock::Call& call, const Choice& choice, opdock::Tensor q, void* workspace, Params* p);

}  // namespace attention
