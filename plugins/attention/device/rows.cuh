// Descriptions of a block and of a row that attention's kernels share, and the conversion of scores
// into weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_params.cuh"
#include "opdock/device.cuh"

namespace attention {

using namespace opdock;

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;

// The rows and keys of a block. Keys and rows are fewer than 2^31.
struct Block {
  int batch, key_batch;  // what is multiplied by the strides of queries, and by those of keys
  int head;              // of the keys
  int queries, keys;     // numbers of them
  int length;            // number of keys that count; 0 also if the length is out of range
  bool is_bad;           // the length is out of range: everything becomes NaN
  int first_row, rows;
  int first, end;  // range of keys that at least one of the rows sees

  // Describes a batch, without rows. found: how many keys count, or a number below 0.
  OPDOCK_DEVICE Block(int of_batch, int of_key_batch, int of_queries, int of_keys, int found)
      : batch(of_batch),
        key_batch(of_key_batch),
        head(static_cast<int>(block_index_y())),
        queries(of_queries),
        keys(of_keys),
        length(found < 0 ? 0 : found),
        is_bad(found < 0) {}
  // Sets at most `most` rows from row `from` on; split: which part of the keys.
  OPDOCK_DEVICE void set_rows(const Params& p, int from, int most, int split) {
    first_row = from;
    const int left = queries * p.group - from;
    rows = left < most ? left : most;
    first = p.first(position(query_of(p, 0))) + split * p.part;
    end = p.end(length, position(query_of(p, rows - 1)));
    if (p.splits > 1 && end > first + p.part) end = first + p.part;
  }

  // Returns the position of a query among the keys: the last query is at the last key.
  OPDOCK_DEVICE int position(int query) const { return length - queries + query; }
  OPDOCK_DEVICE int query_of(const Params& p, int row) const {
    return p.group == 1 ? first_row + row : (first_row + row) / p.group;
  }
  // all_first() and all_end() bound the range of keys that all rows from `row` to last_row see.
  OPDOCK_DEVICE int all_first(const Params& p, int last_row) const {
    return p.first(position(query_of(p, last_row)));
  }
  OPDOCK_DEVICE int all_end(const Params& p, int row) const {
    return p.end(length, position(query_of(p, row)));
  }
};

// Batches: block_index_z() is the number of one. The kernels for sequences have the same functions.
struct Batches {
  static constexpr bool kMayBeEmpty = false;  // whether a block may be without rows, or keys

  OPDOCK_DEVICE static Block of(const Params& p) {
    const int batch = static_cast<int>(block_index_z());
    return {batch, batch, p.queries, p.keys, p.length(batch)};
  }
  // Describes the rows of a tile.
  OPDOCK_DEVICE static Block rows(const Params& p, int tile, int tile_rows, int split) {
    Block block = of(p);
    block.set_rows(p, tile * tile_rows, tile_rows, split);
    return block;
  }
  // Describes all rows that share the keys of tile *tile, of tile_keys keys.
  OPDOCK_DEVICE static Block of_keys(const Params& p, int /*tile_keys*/, int* /*tile*/) {
    Block block = of(p);
    block.set_rows(p, 0, p.queries * p.group, 0);
    return block;
  }
};

// A row: a query of a head.
struct Row {
  int query, head;
  bool exists;
  int first, end;  // range of the block's keys that the row sees

  OPDOCK_DEVICE Row(const Params& p, const Block& block, int row) : exists(row < block.rows) {
    const int at = exists ? row : 0;
    query = block.query_of(p, at);
    head = block.head * p.group + (block.first_row + at - query * p.group);
    const int position = block.position(query);
    first = p.first(position);
    end = exists ? p.end(block.length, position) : 0;
    end = end < block.end ? end : block.end;
  }
};

// Adds mask, bias and slope to a row's scores, which are exponents of 2.
template <class T>
struct RowAdded {
  const void *mask, *bias;  // the row's part of them
  float slope;
  int position;

  // block, row: a Block and a Row, or an AddedRow in place of both.
  template <class Block, class Row>
  OPDOCK_DEVICE RowAdded(const Params& p, const Block& block, const Row& row)
      : mask(row_of(p.mask, block, row)),
        bias(row_of(p.bias, block, row)),
        slope(p.slopes ? p.slopes[row.head] * kLog2E : 0.0f),
        position(block.position(row.query)) {}

  OPDOCK_DEVICE float operator()(const Params& p, float score, int key) const {
    if (mask) score = opdock::fma(at(p.mask, mask, key), kLog2E, score);
    if (bias) score = opdock::fma(at(p.bias, bias, key), kLog2E, score);
    return opdock::fma(static_cast<float>(key - position), slope, score);
  }

 private:
  template <class Block, class Row>
  static OPDOCK_DEVICE const void* row_of(const Added& added, const Block& block, const Row& row) {
    const int64_t at = block.batch * added.batch + row.head * added.head + row.query * added.query;
    if (added.wide) return static_cast<const float*>(added.data) + at;
    return added.data ? static_cast<const T*>(added.data) + at : nullptr;
  }
  static OPDOCK_DEVICE float at(const Added& added, const void* row, int key) {
    if (added.wide) return static_cast<const float*>(row)[key * added.key];
    return to_float(static_cast<const T*>(row)[key * added.key]);
  }
};

// Returns the scale of a key or of a value.
OPDOCK_DEVICE float scale_at(const Scales& scales, const Block& block, int key) {
  return scales.data[scales.at(block.key_batch, key, block.head)];
}

// Returns 2^(x - most), also if nothing has been seen yet and both are -infinity.
OPDOCK_DEVICE float weight(float x, float most) {
  return opdock::exp2(x - (most == -infinity() ? 0.0f : most));
}

// Stores the logarithm of the sum of a row's exponentials, if it is wanted. most: the maximum of
// its scores, which are exponents of 2; total: the sum relative to it. -infinity for a row without
// keys.
OPDOCK_DEVICE void store_lse(const Params& p, int64_t batch, int64_t head, int query, float most,
                             float total) {
  if (!p.lse.data) return;
  static_cast<float*>(p.lse.data)[p.lse.at(batch, head, query)] =
      total == 0 ? -infinity() : opdock::fma(most, kLn2, opdock::log(total));
}

// Combines what `parts` parts of a block have found for its rows into the result. Part `part` has
// the maximum and sum of row r in stats[2 (part * rows + r)], and the weighted sum of the values in
// sums[(part * rows + r) * Size]. All threads of the block call this, after a barrier.
template <class T, int Size>
OPDOCK_DEVICE void finish_rows(const Params& p, const Block& block, int split, int parts,
                               const float* stats, const float* sums, int tile_rows) {
  const int rows = block.rows;
  for (int i = thread_index(); i < rows * Size; i += block_threads()) {
    const int row = i / Size, column = i % Size;
    float most = -infinity();
    for (int part = 0; part < parts; ++part)
      most = opdock::max(most, stats[2 * (part * rows + row)]);
    float total = 0, sum = 0;
    for (int part = 0; part < parts; ++part) {
      const int at = part * rows + row;
      const float factor = weight(stats[2 * at], most);
      total = opdock::fma(stats[2 * at + 1], factor, total);
      sum = opdock::fma(sums[at * Size + column], factor, sum);
    }
    if (p.splits > 1) {
      const int64_t tile =
          (block.batch * grid_blocks_y() + block.head) * p.row_tiles + block.first_row / tile_rows;
      const int64_t at = (tile * p.splits + split) * tile_rows + row;
      p.partial[at * Size + column] = sum;
      if (column == 0) {
        p.stats[2 * at] = most;
        p.stats[2 * at + 1] = block.is_bad ? bits_float(0x7fc00000u) : total;
      }
    } else if (column < p.size) {
      const Row at(p, block, row);
      const float value = block.is_bad ? bits_float(0x7fc00000u) : total == 0 ? 0 : sum / total;
      static_cast<T*>(p.out.data)[p.out.at(block.batch, at.query, at.head) + column] =
          from_float<T>(value);
      if (column == 0)
        store_lse(p, block.batch, at.head, at.query, most,
                  block.is_bad ? bits_float(0x7fc00000u) : total);
    }
  }
}

// Combines the results of the parts of the keys, with a block per row. size, tile_rows: those of
// the kernel before.
template <class T>
OPDOCK_KERNEL(kMergeThreads)
merge(Params p, int size, int tile_rows) {
  pdl_wait_and_trigger();
  const int row = static_cast<int>(block_index()), query = row / p.group;
  const int64_t head = block_index_y() * p.group + (row - query * p.group);
  const int64_t tile =
      (block_index_z() * grid_blocks_y() + block_index_y()) * p.row_tiles + row / tile_rows;
  const int64_t first = tile * p.splits * tile_rows + row % tile_rows;
  float most = -infinity();
  for (int split = 0; split < p.splits; ++split)
    most = opdock::max(most, p.stats[2 * (first + split * tile_rows)]);
  T* const out = static_cast<T*>(p.out.data) + p.out.at(block_index_z(), query, head);
  for (int column = thread_index(); column < p.size; column += kMergeThreads) {
    float total = 0, sum = 0;
    for (int split = 0; split < p.splits; ++split) {
      const int64_t at = first + split * tile_rows;
      const float factor = weight(p.stats[2 * at], most);
      total = opdock::fma(p.stats[2 * at + 1], factor, total);
      sum = opdock::fma(p.partial[at * size + column], factor, sum);
    }
    out[column] = from_float<T>(total == 0 ? 0 : sum / total);
    if (column == 0) store_lse(p, block_index_z(), head, query, most, total);
  }
}

}  // namespace attention
