// Attention and its gradients for sequences that lie one behind the other, without padding: the
// kernels for batches, whose blocks find their sequence first. These have a namespace of their own,
// with the size first, because what is compiled at a time on software GPUs has both in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backward_tiles.cuh"
#include "prompt.cuh"

namespace attention {
namespace sequences {

// The sequences as forms of attention see them. The strides by `batch` are those by tokens, so that
// what is multiplied by them is the number of a sequence's first token.
struct Sequences {
  static constexpr bool kMayBeEmpty = true;  // a sequence may have fewer tiles than have room

  OPDOCK_DEVICE static Block rows(const Params& p, int tile, int tile_rows, int) {
    Block block = find(p, p.q_starts, p.queries, p.group, tile_rows, &tile);
    block.set_rows(p, tile * tile_rows, tile < 0 ? 0 : tile_rows, 0);
    return block;
  }
  // *tile becomes the number among the tiles of the sequence.
  OPDOCK_DEVICE static Block of_keys(const Params& p, int tile_keys, int* tile) {
    Block block = find(p, p.k_starts, p.keys, 1, tile_keys, tile);
    block.set_rows(p, 0, block.queries * p.group, 0);
    if (*tile < 0) block.keys = 0;
    return block;
  }

 private:
  // Finds the sequence to which a tile belongs, as Params::first_tile() numbers tiles. Whatever the
  // starts are, the ranges that are found lie within the tensors.
  OPDOCK_DEVICE static Block find(const Params& p, const int* starts, int total, int each,
                                  int tile_size, int* tile) {
    int s = 0, other = p.sequences;  // the sequence is s, or one between s and `other`
    while (other - s > 1) {
      const int middle = (s + other) / 2;
      if (p.first_tile(starts, middle, total, each, tile_size) <= *tile)
        s = middle;
      else
        other = middle;
    }
    *tile -= p.first_tile(starts, s, total, each, tile_size);
    const int query = Params::start(p.q_starts, s, p.queries);
    const int key = Params::start(p.k_starts, s, p.keys);
    if (s + 1 == p.sequences) return {query, key, p.queries - query, p.keys - key, 0};
    const int queries = Params::start(p.q_starts, s + 1, p.queries) - query;
    const int keys = Params::start(p.k_starts, s + 1, p.keys) - key;
    const bool is_bad = keys < 0 || key != p.k_starts[s] || key + keys != p.k_starts[s + 1];
    return {query, key, queries, keys < 0 ? 0 : keys, is_bad ? -1 : keys};
  }
};

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(prompt_threads(sizeof(T)), 1)
prompt(Params p) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    prompt_rows<T, Size, false, Sequences>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
plain(Params p) {
  pdl_wait_and_trigger();
  plain_rows_of<T, Size, plain_rows(Size), Sequences>(p);
}

template <int Size, class T>
OPDOCK_KERNEL(kRowThreads)
row_sums(BackwardParams b) {
  pdl_wait_and_trigger();
  add_row_sums<T, Sequences>(b);
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
query_gradients(BackwardParams b) {
  pdl_wait_and_trigger();
  plain_query_gradients<T, Size, Sequences>(b);
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kPlainThreads, 1)
key_gradients(BackwardParams b) {
  pdl_wait_and_trigger();
  plain_key_gradients<T, Size, Sequences>(b);
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kTileThreads, 2)
query_tiles(BackwardParams b) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    query_tile<T, Size, Sequences>(b);
  } else {
    trap();
  }
}

template <int Size, class T>
OPDOCK_KERNEL_BLOCKS(kTileThreads, 2)
key_tiles(BackwardParams b) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    key_tile<T, Size, Sequences>(b);
  } else {
    trap();
  }
}

}  // namespace sequences
}  // namespace attention
