// Attention and its gradients with weights that become 0 at random: the kernels for batches, with
// another policy. The size is the first argument because kernels that have it in common are
// compiled at a time for software GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backward_tiles.cuh"
#include "prompt.cuh"

namespace attention {
namespace dropped {

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(prompt_threads(sizeof(T)), 1)
prompt(Params p) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    prompt_rows<T, Size, false, Batches, DroppedWeights>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
plain(Params p) {
  pdl_wait_and_trigger();
  plain_rows_of<T, Size, plain_rows(Size), Batches, DroppedWeights>(p);
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
query_gradients(BackwardParams b) {
  pdl_wait_and_trigger();
  plain_query_gradients<T, Size, Batches, DroppedWeights>(b);
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
key_gradients(BackwardParams b) {
  pdl_wait_and_trigger();
  plain_key_gradients<T, Size, Batches, DroppedWeights>(b);
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kTileThreads, 2)
query_tiles(BackwardParams b) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    query_tile<T, Size, Batches, DroppedWeights>(b);
  } else {
    trap();
  }
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kTileThreads, 2)
key_tiles(BackwardParams b) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    key_tile<T, Size, Batches, DroppedWeights>(b);
  } else {
    trap();
  }
}

}  // namespace dropped
}  // namespace attention
