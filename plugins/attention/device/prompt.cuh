// Many queries: a block has 128 rows, sixteen a warp, which share keys and values in shared memory;
// the next ones are copied there meanwhile. Keys that no row of the block sees are never read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tile.cuh"

namespace attention {

// A stage of shared memory, of kPromptKeys keys and their values.
template <class T, int Size>
constexpr int prompt_stage = kPromptKeys * (key_stride(Size) + value_stride(Size));

template <class T, int Size>
OPDOCK_DEVICE void copy_rows(const Params& p, const Block& block, const Heads& from, int first,
                             int stride, T* to) {
  constexpr int kVectors = Size / 8;
  const T* const data = static_cast<const T*>(from.data) + from.at(block.batch, 0, block.head);
  OPDOCK_UNROLL
  for (int i = 0; i < kPromptKeys * kVectors / kPromptThreads; ++i) {
    const int at = i * kPromptThreads + thread_index();
    const int row = at / kVectors, element = at % kVectors * 8;
    const int key = first + row < block.end ? first + row : block.end - 1;
    copy_async16(to + row * stride + element,
                 data + key * from.token + (element < p.size ? element : 0));
  }
}

template <class T, int Size>
OPDOCK_DEVICE void prompt_rows(const Params& p) {
  // Where later queries see more keys, they begin.
  const int index = static_cast<int>(block_index());
  const int number = p.causal ? p.row_tiles - 1 - index : index;
  constexpr int kRows = kPromptThreads / 2;
  const Block block(p, number, kRows, 0);
  using Of = Tile<T, Size>;
  Of tile;
  const int warp = thread_index() / 32;
  const int first_row = warp * kStep;
  const Row rows[2] = {Row(p, block, first_row + tile.g), Row(p, block, first_row + tile.g + 8)};
  tile.load_queries(p, block, rows);
  // Of this warp's rows: keys that one sees, and that all see. A warp without rows sees none.
  const int last_row = first_row + kStep < block.rows ? first_row + kStep - 1 : block.rows - 1;
  const int some_first = p.first(p.position(block.length, block.query_of(p, first_row)));
  const int high = p.position(block.length, block.query_of(p, last_row));
  const int some_end = first_row < block.rows ? p.end(block.length, high) : 0;
  const int all_first = block.all_first(p, last_row), all_end = block.all_end(p, first_row);

  T* const shared = dynamic_shared<T>();
  constexpr int kValuesAt = kPromptKeys * key_stride(Size);
  int stage = 0;
  const auto copy = [&](int first, int to) {
    T* const keys = shared + to * prompt_stage<T, Size>;
    copy_rows<T, Size>(p, block, p.k, first, key_stride(Size), keys);
    copy_rows<T, Size>(p, block, p.v, first, value_stride(Size), keys + kValuesAt);
  };
  if (block.first < block.end) copy(block.first, 0);
  copy_async_commit();
  for (int key = block.first; key < block.end; key += kPromptKeys) {
    if (key + kPromptKeys < block.end) copy(key + kPromptKeys, stage ^ 1);
    copy_async_commit();
    copy_async_wait<1>();
    block_barrier();
    if (key < some_end && key + kPromptKeys > some_first) {
      const T* const keys = shared + stage * prompt_stage<T, Size>;
      const T* const values = keys + kValuesAt;
      float score[kPromptKeys / 8][4] = {};
      OPDOCK_UNROLL
      for (int c = 0; c < Of::kKeyVectors; ++c) {
        OPDOCK_UNROLL
        for (int i = 0; i < kPromptKeys / 8; ++i)
          tile.multiply_keys(
              load16(keys + tile.key_of(i) * key_stride(Size) + (4 * c + tile.t) * 8), c, score[i]);
      }
      const bool all =
          key >= all_first && key + kPromptKeys <= all_end && last_row == first_row + kStep - 1;
      make_scores<T, 2, kPromptKeys / 8>(tile, p, block, rows, key, all, false, score);
      tile.make_weights(score);
      OPDOCK_UNROLL
      for (int i = 0; i < kPromptKeys / kStep; ++i) {
        Bytes16 v[4][Of::kValueVectors];
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j) {
          OPDOCK_UNROLL
          for (int u = 0; u < Of::kValueVectors; ++u)
            v[j][u] = load16(values + (i * kStep + tile.value_of(j)) * value_stride(Size) +
                             (8 * u + tile.g) * 8);
        }
        tile.add_values(score[2 * i], score[2 * i + 1], v);
      }
    }
    block_barrier();
    stage ^= 1;
  }
  tile.finish_sums();

  OPDOCK_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (warp * kStep + tile.g + 8 * i >= block.rows) continue;
    const float factor = block.is_bad       ? bits_float(0x7fc00000u)
                         : tile.sum[i] == 0 ? 0.0f
                                            : 1.0f / tile.sum[i];
    T* const to = static_cast<T*>(p.out.data) + p.out.at(block.batch, rows[i].query, rows[i].head);
    OPDOCK_UNROLL
    for (int u = 0; u < Of::kValueVectors; ++u) {
      OPDOCK_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int at = (8 * u + 2 * tile.t + c) * 8;
        if (at >= p.size) continue;
        Bytes16 words;
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j)
          words.word[j] = floats_to_pair(T{}, tile.out[8 * u + 2 * j][2 * i + c] * factor,
                                         tile.out[8 * u + 2 * j + 1][2 * i + c] * factor);
        if (p.out_by_vectors) {
          store16(to + at, words);
          continue;
        }
        OPDOCK_UNROLL
        for (int j = 0; j < 8; ++j) {
          if (at + j < p.size)
            to[at + j] = {static_cast<uint16_t>(words.word[j / 2] >> (16 * (j % 2)))};
        }
      }
    }
  }
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(kPromptThreads, 1)
prompt(Params p) {
  launch_turn();
  if constexpr (kHasMatrices) {
    prompt_rows<T, Size>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

}  // namespace attention
