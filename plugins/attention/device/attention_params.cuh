// What the kernels of attention take, on the GPU and on the CPU, filled in by attention.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace attention {

// Elements of keys and values.
enum Cache : int { kSame, kInt8, kFloat8 };  // those of the queries; with scales the other two

// Strides of a tensor [batch, token, head, element], in elements; of the last dimension: 1, if
// nothing else is said.
struct Heads {
  void* data;
  long long batch, token, head;

  OPDOCK_HOST_DEVICE long long at(long long b, long long t, long long h) const {
    return b * batch + t * token + h * head;
  }
};
// What is added to the scores [batch, head, query, key]; data NULL: nothing.
struct Added {
  const void* data;
  long long batch, head, query, key;
  int wide;  // of float, not of the queries' type
};
// The scales [batch, token, head] of int8 and float8.
struct Scales {
  float* data;
  long long batch, token, head;

  OPDOCK_HOST_DEVICE long long at(long long b, long long t, long long h) const {
    return b * batch + t * token + h * head;
  }
};

// Query i of `queries` and head h of `heads` see the keys of head h / group. On a GPU the rows of a
// batch's and head's keys are its queries and their heads: row i * group + h % group.
struct Params {
  Heads q, k, v, out;
  long long key_element;  // from an element of a key to the next: 1, or keys lie by columns
  Added mask, bias;
  const float* slopes;  // of each head; NULL: none
  Scales k_scale, v_scale;
  const int* lengths;  // of each batch; NULL: `keys`
  int queries, keys, heads;
  int group, size;  // heads that share keys; elements of a head
  int cache;        // a Cache
  float scale;      // on a GPU: times log2(e)
  int causal;
  int window;  // of keys, if causal; 0: all before
  // Of a GPU's launch. Blocks of a batch and head of keys: `splits` parts of the keys, each of
  // `part` keys, for each tile of rows.
  int row_tiles, splits, part;
  int by_vectors;      // q, k and v can be read by 16 bytes
  int out_by_vectors;  // out can be written so
  float* partial;  // [batch, heads of keys, tile, split, row of the tile, element]; splits > 1 only
  float* stats;    // the same, of each row its maximum and its sum

  // How many keys count for batch b; below 0: lengths has what is no length.
  OPDOCK_HOST_DEVICE int length(long long b) const {
    if (!lengths) return keys;
    const int of = lengths[b];
    return of > keys ? -1 : of;
  }
  // Of query i among the keys, of which `of` count: the last query is the last key.
  OPDOCK_HOST_DEVICE int position(int of, int i) const { return of - queries + i; }
  // The keys that a query at such a position sees: [first, end).
  OPDOCK_HOST_DEVICE int first(int position) const {
    return window > 0 && position >= window ? position + 1 - window : 0;
  }
  OPDOCK_HOST_DEVICE int end(int of, int position) const {
    if (!causal) return of;
    return position + 1 < 0 ? 0 : position + 1;
  }
};

// Of a tile of rows, by kernels and head sizes.
inline constexpr int kDecodeRows = 8;
inline constexpr int kDecodeThreads = 128;
inline constexpr int kPlainThreads = 256;
inline constexpr int kMergeThreads = 128;
inline constexpr int kColumnThreads = 256;
OPDOCK_HOST_DEVICE constexpr int plain_rows(int size) {
  return 512 / size;
}
// Of a block of a prompt's rows, 16 each 32 threads: as long as a multiprocessor has room for few
// of them, small blocks keep it busy better; floats need the larger ones to share what they read.
OPDOCK_HOST_DEVICE constexpr int prompt_threads(int bytes) {
  return bytes == 4 ? 256 : 128;
}
// Keys at a time in shared memory, by the bytes of an element.
OPDOCK_HOST_DEVICE constexpr int prompt_keys(int bytes) {
  return 128 / bytes;
}
// Elements of a row of keys and of values in shared memory, of so many bytes each: so far apart
// that what lanes read together lies in different banks.
OPDOCK_HOST_DEVICE constexpr int key_stride(int size, int bytes) {
  return size + 64 / bytes;
}
OPDOCK_HOST_DEVICE constexpr int value_stride(int size, int bytes) {
  return size + 16 / bytes;
}
// Where row `row` begins in shared memory, with 16 elements of 2 bytes more after each `each` rows:
// then lanes that read together at rows `each` apart read from different banks.
OPDOCK_HOST_DEVICE constexpr int spread_row(int row, int stride, int each) {
  return row * stride + row / each * 16;
}
// Rows of a head's elements, of prompt_keys(2) keys each, if keys lie by columns; and their values.
OPDOCK_HOST_DEVICE constexpr int column_at(int element) {
  return spread_row(element, prompt_keys(2), 8);
}
OPDOCK_HOST_DEVICE constexpr int column_value_at(int key, int size) {
  return spread_row(key, value_stride(size, 2), 16);
}
// A stage of shared memory, in elements: keys, and from prompt_values_at() on their values.
OPDOCK_HOST_DEVICE constexpr int prompt_values_at(int size, int bytes, bool by_columns) {
  return by_columns ? column_at(size) : prompt_keys(bytes) * key_stride(size, bytes);
}
OPDOCK_HOST_DEVICE constexpr int prompt_stage(int size, int bytes, bool by_columns) {
  return prompt_values_at(size, bytes, by_columns) +
         (by_columns ? column_value_at(prompt_keys(2), size)
                     : prompt_keys(bytes) * value_stride(size, bytes));
}

}  // namespace attention
