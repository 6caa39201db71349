// Parameters of attention's kernels, on the GPU and on the CPU, filled in by attention.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/philox.cuh"

namespace attention {

// Type of the elements of keys and values.
enum Cache : int { kSame, kInt8, kFloat8 };  // kSame: the queries' type; the other two have scales

// Strides of a tensor [batch, token, head, element], in elements. The last dimension has stride 1
// unless stated otherwise.
struct Heads {
  void* data;
  long long batch, token, head;

  OPDOCK_HOST_DEVICE long long at(long long b, long long t, long long h) const {
    return b * batch + t * token + h * head;
  }
};
// A tensor [batch, head, query, key] that is added to the scores; data NULL: none.
struct Added {
  const void* data;
  long long batch, head, query, key;
  int wide;  // 1: float; 0: the queries' type
};
// The scales [batch, token, head] of int8 and float8.
struct Scales {
  float* data;
  long long batch, token, head;

  OPDOCK_HOST_DEVICE long long at(long long b, long long t, long long h) const {
    return b * batch + t * token + h * head;
  }
};
// A tensor [batch, head, query] with a number for each row; data NULL: none.
struct RowNumbers {
  void* data;
  long long batch, head, query;
  int wide;  // 1: double, on the CPU only; 0: float

  OPDOCK_HOST_DEVICE long long at(long long b, long long h, long long i) const {
    return b * batch + h * head + i * query;
  }
};

// Weights that become 0 at random. Each row of scores has blocks of four random numbers, which
// decide about sixteen keys by four: a thread of a matrix product has the keys of a block.
struct Dropout {
  opdock::RandomSource random;  // of the forward pass; others read `state`
  const long long* state;       // the seed, and the number of the first block; NULL: see `random`
  long long* new_state;         // where the forward pass leaves these two
  int is_on;
  unsigned int least;  // a weight is kept if its number is at least `least`
  int keeps_none;      // whatever the numbers are
  float factor;        // of the weights that are kept
  double wide_factor;  // the same, for double
  long long row_blocks;

  OPDOCK_HOST_DEVICE static long long block_of(int key) { return key / 16 * 4 + key % 8 / 2; }
  OPDOCK_HOST_DEVICE static int word_of(int key) { return key % 16 / 8 * 2 + key % 2; }
  OPDOCK_HOST_DEVICE bool keeps(unsigned int number) const {
    return !keeps_none && number >= least;
  }
  OPDOCK_HOST_DEVICE unsigned long long seed() const {
    return state ? static_cast<unsigned long long>(state[0]) : random.current_seed();
  }
  OPDOCK_HOST_DEVICE unsigned long long first_block() const {
    return state ? static_cast<unsigned long long>(state[1])
                 : random.offset / 4 + (random.offset % 4 != 0);
  }
};

// Query i of `queries` and head h of `heads` see the keys of head h / group. On a GPU, the rows
// that share a batch's and head's keys are its queries and their heads: row i * group + h % group.
struct Params {
  Heads q, k, v, out;
  long long key_element;  // distance between a key's elements: 1, or else keys lie by columns
  Added mask, bias;
  const float* slopes;  // one per head; NULL: none
  Scales k_scale, v_scale;
  const int* lengths;  // one per batch; NULL: `keys`
  Dropout drop;
  RowNumbers lse;  // where the logarithm of the sum of a row's exponentials goes
  // Sequences that lie one behind the other, in tensors without batches: sequence s begins with
  // query q_starts[s] and key k_starts[s], and ends where the next one begins. The last of them is
  // what lies behind all others, and has queries that see no key. Strides by `batch` are then those
  // by tokens, and `queries` and `keys` count all tokens. 0 sequences: there are batches.
  const int *q_starts, *k_starts;
  int sequences;
  int queries, keys, heads;
  int group, size;  // heads that share keys; elements of a head
  int cache;        // a Cache
  float scale;      // on a GPU multiplied by log2(e)
  int causal;
  int window;  // number of keys, if causal; 0: all earlier keys
  // The following are for a GPU's launch. For each batch and head of keys, and each tile of rows,
  // there is a block for each of `splits` parts of the keys; a part has `part` keys.
  int row_tiles, splits, part;
  int by_vectors;      // q, k and v can be read by 16 bytes
  int out_by_vectors;  // out can be written by 16 bytes
  float* partial;  // [batch, heads of keys, tile, split, row of the tile, element]; splits > 1 only
  float* stats;    // likewise, each row's maximum and sum

  // Returns where sequence s begins in starts: the first one with 0, others from 0 to total. Other
  // numbers become the nearest of these.
  OPDOCK_HOST_DEVICE static int start(const int* starts, int s, int total) {
    const int at = s == 0 ? 0 : starts[s];
    return at < 0 ? 0 : at > total ? total : at;
  }
  // Returns the number of the first tile that sequence s has. Each token has `each` rows of a tile;
  // wherever a sequence begins and ends, its tiles end before the next one's begin.
  OPDOCK_HOST_DEVICE int first_tile(const int* starts, int s, int total, int each,
                                    int tile_size) const {
    return start(starts, s, total) * each / tile_size + s;
  }
  // Returns how many keys count for batch b; below 0: lengths[b] is out of range.
  OPDOCK_HOST_DEVICE int length(long long b) const {
    if (!lengths) return keys;
    const int of = lengths[b];
    return of > keys ? -1 : of;
  }
  // Returns the position of query i among the keys, of which `of` count: the last query is at the
  // last key.
  OPDOCK_HOST_DEVICE int position(int of, int i) const { return of - queries + i; }
  // first() and end() return the range [first, end) of keys that a query at this position sees.
  OPDOCK_HOST_DEVICE int first(int position) const {
    return window > 0 && position >= window ? position + 1 - window : 0;
  }
  OPDOCK_HOST_DEVICE int end(int of, int position) const {
    if (!causal) return of;
    return position + 1 < 0 ? 0 : position + 1;
  }
};

// Rows of a tile and threads of a block, by kernel and head size.
inline constexpr int kDecodeRows = 8;
inline constexpr int kDecodeThreads = 128;
inline constexpr int kPlainThreads = 256;
inline constexpr int kMergeThreads = 128;
inline constexpr int kColumnThreads = 256;
OPDOCK_HOST_DEVICE constexpr int plain_rows(int size) {
  return 512 / size;
}
// Threads of a block of a prompt's rows, which has 16 rows for every 32 threads. While a
// multiprocessor has room for only a few blocks, small ones keep it busier; floats need the larger
// ones, so that more rows share the data that is read.
OPDOCK_HOST_DEVICE constexpr int prompt_threads(int bytes) {
  return bytes == 4 ? 256 : 128;
}
// Keys that are in shared memory at a time, by the size of an element.
OPDOCK_HOST_DEVICE constexpr int prompt_keys(int bytes) {
  return 128 / bytes;
}
// Stride of a row of keys or values in shared memory, in elements of so many bytes. Rows are padded
// so that lanes that read at the same time read from different banks.
OPDOCK_HOST_DEVICE constexpr int key_stride(int size, int bytes) {
  return size + 64 / bytes;
}
OPDOCK_HOST_DEVICE constexpr int value_stride(int size, int bytes) {
  return size + 16 / bytes;
}
// Returns where row `row` begins in shared memory, with 16 elements of 2 bytes of padding after
// each `each` rows. Lanes that read at the same time from rows `each` apart then read from
// different banks.
OPDOCK_HOST_DEVICE constexpr int spread_row(int row, int stride, int each) {
  return row * stride + row / each * 16;
}
// Where rows of a head's elements begin, of prompt_keys(2) keys each, if keys lie by columns; and
// rows of their values.
OPDOCK_HOST_DEVICE constexpr int column_at(int element) {
  return spread_row(element, prompt_keys(2), 8);
}
OPDOCK_HOST_DEVICE constexpr int column_value_at(int key, int size) {
  return spread_row(key, value_stride(size, 2), 16);
}
// Size of a stage of shared memory, in elements: keys, and from prompt_values_at() on their values.
OPDOCK_HOST_DEVICE constexpr int prompt_values_at(int size, int bytes, bool by_columns) {
  return by_columns ? column_at(size) : prompt_keys(bytes) * key_stride(size, bytes);
}
OPDOCK_HOST_DEVICE constexpr int prompt_stage(int size, int bytes, bool by_columns) {
  return prompt_values_at(size, bytes, by_columns) +
         (by_columns ? column_value_at(prompt_keys(2), size)
                     : prompt_keys(bytes) * value_stride(size, bytes));
}

}  // namespace attention
