// Many queries. A block has sixteen rows per warp, which share keys and values in shared memory;
// the next ones are copied there meanwhile. Keys that no row of the block sees are never read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "column_halves.cuh"
#include "drop.cuh"
#include "floats.cuh"

namespace attention {

// ByColumns: copies values of keys that lie by columns. Clamps: some of the keys may lie before the
// block's first one.
template <class T, int Size, bool ByColumns = false, bool Clamps = ByColumns>
OPDOCK_DEVICE void copy_rows(const Params& p, const Block& block, const Heads& from, int first,
                             int stride, T* to) {
  constexpr int kKeys = prompt_keys(sizeof(T));
  constexpr int kEach = 16 / sizeof(T), kVectors = Size / kEach;
  const T* const data = static_cast<const T*>(from.data) + from.at(block.key_batch, 0, block.head);
  OPDOCK_UNROLL
  for (int i = 0; i < kKeys * kVectors / prompt_threads(sizeof(T)); ++i) {
    const int at = i * prompt_threads(sizeof(T)) + thread_index();
    const int row = at / kVectors, element = at % kVectors * kEach;
    int key = first + row < block.end ? first + row : block.end - 1;
    if (Clamps && key < block.first) key = block.first;
    copy_async16(to + (ByColumns ? column_value_at(row, Size) : row * stride) + element,
                 data + key * from.token + (element < p.size ? element : 0));
  }
}

// Copies keys that lie by columns; they consist of whole vectors.
template <class T, int Size>
OPDOCK_DEVICE void copy_columns(const Params& p, const Block& block, int first, T* to) {
  constexpr int kVectors = prompt_keys(sizeof(T)) / 8;
  const T* const data = static_cast<const T*>(p.k.data) + p.k.at(block.key_batch, 0, block.head);
  OPDOCK_UNROLL
  for (int i = 0; i < Size * kVectors / prompt_threads(sizeof(T)); ++i) {
    const int at = i * prompt_threads(sizeof(T)) + thread_index();
    const int element = at / kVectors, own = at % kVectors * 8;
    const int key = first + own < p.keys ? first + own : 0;
    copy_async16(to + column_at(element) + own,
                 data + (element < p.size ? element : 0) * p.key_element + key);
  }
}

// Form: Batches or Sequences. Drop: KeptWeights or DroppedWeights.
template <class T, int Size, bool ByColumns, class Form, class Drop = KeptWeights>
OPDOCK_DEVICE void prompt_rows(const Params& p) {
  // Blocks of later queries begin first if these see more keys.
  const int index = static_cast<int>(block_index());
  const int number = p.causal ? p.row_tiles - 1 - index : index;
  constexpr int kRows = prompt_threads(sizeof(T)) / 2;
  const Drop drop(p);
  if constexpr (Drop::kDrops) drop.leave(p);
  const Block block = Form::rows(p, number, kRows, 0);
  if (Form::kMayBeEmpty && block.rows <= 0) return;
  Tile<T, Size, ByColumns> tile;
  const int warp = thread_index() / 32;
  const int first_row = warp * kStep;
  const Row rows[2] = {Row(p, block, first_row + tile.g), Row(p, block, first_row + tile.g + 8)};
  tile.load_queries(p, block, rows);
  // Ranges of keys that at least one of this warp's rows sees, and that all of them see. A warp
  // without rows sees none.
  const int last_row = first_row + kStep < block.rows ? first_row + kStep - 1 : block.rows - 1;
  const int some_first = p.first(block.position(block.query_of(p, first_row)));
  const int high = block.position(block.query_of(p, last_row));
  const int some_end = first_row < block.rows ? p.end(block.length, high) : 0;
  const int all_first = block.all_first(p, last_row), all_end = block.all_end(p, first_row);

  T* const shared = dynamic_shared<T>();
  constexpr int kKeys = prompt_keys(sizeof(T));
  constexpr int kBytes = sizeof(T);
  constexpr int kValuesAt = prompt_values_at(Size, kBytes, ByColumns);
  constexpr int kStage = prompt_stage(Size, kBytes, ByColumns);
  int stage = 0;
  const auto copy = [&](int first, int to) {
    T* const keys = shared + to * kStage;
    T* const values = keys + kValuesAt;
    if constexpr (ByColumns) {
      copy_columns<T, Size>(p, block, first, keys);
    } else {
      copy_rows<T, Size, false, Drop::kDrops>(p, block, p.k, first, key_stride(Size, kBytes), keys);
    }
    copy_rows<T, Size, ByColumns, ByColumns || Drop::kDrops>(p, block, p.v, first,
                                                             value_stride(Size, kBytes), values);
  };
  // The beginning of a vector, or of a block of random numbers.
  constexpr int kFirst = ByColumns ? 8 : Drop::kDrops ? 16 : 1;
  const int first_key = block.first / kFirst * kFirst;
  if (first_key < block.end) copy(first_key, 0);
  copy_async_commit();
  for (int key = first_key; key < block.end; key += kKeys) {
    if (key + kKeys < block.end) copy(key + kKeys, stage ^ 1);
    copy_async_commit();
    copy_async_wait<1>();
    block_barrier();
    if (key < some_end && key + kKeys > some_first) {
      const T* const keys = shared + stage * kStage;
      const T* const values = keys + kValuesAt;
      float score[kKeys / 8][4] = {};
      tile.multiply_keys(keys, score);
      const bool all =
          key >= all_first && key + kKeys <= all_end && last_row == first_row + kStep - 1;
      make_scores<T, 2, kKeys / 8>(tile, p, block, rows, key, all, false, score);
      tile.make_weights(score);
      if constexpr (Drop::kDrops) {
        OPDOCK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const unsigned long long of_row = drop.row(p, block, rows[i]);
          OPDOCK_UNROLL
          for (int s = 0; s < kKeys / 8; s += 2)
            drop.drop(p, of_row, key + 8 * s, tile.t, p.drop.factor, &score[s][2 * i],
                      &score[s + 1][2 * i]);
        }
      }
      tile.add_values(values, score);
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
    tile.store(p, to, i, factor);
    if (tile.t == 0)
      store_lse(p, block.batch, rows[i].head, rows[i].query, tile.most[i],
                block.is_bad ? bits_float(0x7fc00000u) : tile.sum[i]);
  }
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(prompt_threads(sizeof(T)), 1)
prompt(Params p) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    prompt_rows<T, Size, false, Batches>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(prompt_threads(sizeof(T)), 1)
prompt_by_columns(Params p) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    prompt_rows<T, Size, true, Batches>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

}  // namespace attention
