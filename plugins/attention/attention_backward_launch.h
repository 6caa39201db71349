// Decides how the gradients of attention are computed on a GPU, and launches the kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_arguments.h"
#include "attention_launch.h"
#include "device/backward_params.cuh"

namespace attention {

struct BackwardChoice {
  // Without logarithms of the sums: how they are computed, and the workspace for that.
  Choice forward;
  uint64_t forward_bytes;
  bool has_lse;
  bool by_vectors;
  bool by_tiles;  // on tensor cores
  int size;       // head size that the kernels are compiled for: 64, 128 or 256
};

// Chooses the launch while planning. b: as make_params() fills it in, and the gradients' arguments.
// Reads no tensor's elements.
BackwardChoice choose_backward(const Plan& plan, const Arguments& of, Tensor grad, Tensor result,
                               const BackwardParams& b);
uint64_t backward_workspace_bytes(const BackwardChoice& choice, Tensor q);
// Fills in the rest of b, except the gradients, and launches the kernels that compute b->rows.
void launch_row_sums(Call& call, const BackwardChoice& choice, const Arguments& of,
                     BackwardParams* b);
// Does that too, and launches the kernels of the gradients of q, k and v.
void launch_backward(Call& call, const BackwardChoice& choice, const Arguments& of,
                     BackwardParams* b);

}  // namespace attention
