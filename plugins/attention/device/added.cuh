// The gradient of a tensor that is added to attention's scores, such as a bias. It is the gradient
// of the scores, summed over the dimensions in which the tensor has 1. A block has a tile of
// queries and keys, goes through all that its elements are sums of, and writes each element once:
// without atomics, so that equal calls give equal bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "added_params.cuh"
#include "backward_tiles.cuh"

namespace attention {

// A step of a block's tile: a batch, a head, and the first query and key of the tile.
struct AddedStep {
  int batch, head, first_query, first_key;
};

// The steps of a block whose tile has Queries x Keys scores.
template <int Queries, int Keys>
struct AddedSteps {
  int heads, query_tiles, key_tiles;  // that it goes through
  AddedStep first;
  int64_t count;

  OPDOCK_DEVICE explicit AddedSteps(const AddedParams& a) {
    const Params& p = a.b.p;
    const int all_queries = (p.queries + Queries - 1) / Queries;
    const int all_keys = (p.keys + Keys - 1) / Keys;
    heads = a.sums[1] ? p.heads : 1;
    query_tiles = a.sums[2] ? all_queries : 1;
    key_tiles = a.sums[3] ? all_keys : 1;
    const int grid_keys = a.sums[3] ? 1 : all_keys;
    const int tile = static_cast<int>(block_index());
    first = {static_cast<int>(block_index_z()), static_cast<int>(block_index_y()),
             tile / grid_keys * Queries, tile % grid_keys * Keys};
    count = static_cast<int64_t>(a.sums[0] ? a.batches : 1) * heads * query_tiles * key_tiles;
  }
  OPDOCK_DEVICE AddedStep operator[](int64_t number) const {
    AddedStep step = first;
    step.first_key += static_cast<int>(number % key_tiles) * Keys;
    number /= key_tiles;
    step.first_query += static_cast<int>(number % query_tiles) * Queries;
    number /= query_tiles;
    step.head += static_cast<int>(number % heads);
    step.batch += static_cast<int>(number / heads);
    return step;
  }
};

// A query of a head, with the names that RowAdded reads in a Block and a Row, which belong to a
// head of keys.
struct AddedRow {
  int batch, length, queries;
  int query, head;
  int first, end;  // range of the keys that it sees

  OPDOCK_DEVICE AddedRow(const Params& p, const AddedStep& step, int number)
      : batch(step.batch),
        length(p.length(step.batch)),
        queries(p.queries),
        query(step.first_query + number),
        head(step.head) {
    const bool exists = query < queries && length >= 0;
    if (!exists) query = 0;
    first = p.first(position(query));
    end = exists ? p.end(length, position(query)) : 0;
  }
  OPDOCK_DEVICE int position(int of_query) const { return length - queries + of_query; }
  OPDOCK_DEVICE RowSums sums(const BackwardParams& b) const {
    const float* const from = static_cast<const float*>(b.rows) + b.row_at(batch, head, query);
    return {from[0], from[1]};
  }
};

// Adds up what a block's tile has found, where dimensions of queries or keys are sums, in a fixed
// order, and writes it. tile: Queries x Keys floats in shared memory, after a barrier.
template <class T, int Queries, int Keys>
OPDOCK_DEVICE void store_added(const AddedParams& a, const AddedStep& at, const float* tile) {
  const Params& p = a.b.p;
  const int rows = a.sums[2] ? 1 : Queries, columns = a.sums[3] ? 1 : Keys;
  for (int i = thread_index(); i < rows * columns; i += static_cast<int>(block_threads())) {
    const int row = i / columns, column = i - row * columns;
    float sum = 0;
    for (int r = row; r < (a.sums[2] ? Queries : row + 1); ++r)
      for (int c = column; c < (a.sums[3] ? Keys : column + 1); ++c) sum += tile[r * Keys + c];
    if (at.first_query + row >= p.queries && !a.sums[2]) continue;
    if (at.first_key + column >= p.keys && !a.sums[3]) continue;
    const int64_t to = at.batch * a.strides[0] + at.head * a.strides[1] +
                       (at.first_query + row) * a.strides[2] +
                       (at.first_key + column) * a.strides[3];
    if (a.wide)
      static_cast<float*>(a.out)[to] = sum;
    else
      static_cast<T*>(a.out)[to] = from_float<T>(sum);
  }
}

// Without tensor cores: each thread has a query and a key of the tile, of any strides.
template <class T>
OPDOCK_KERNEL(kAddedThreads)
added_scores(AddedParams a) {
  pdl_wait_and_trigger();
  const Params& p = a.b.p;
  OPDOCK_SHARED(float, tile, kAddedThreads);
  const AddedSteps<kAddedTile, kAddedTile> steps(a);
  float sum = 0;
  for (int64_t number = 0; number < steps.count; ++number) {
    const AddedStep step = steps[number];
    const AddedRow row(p, step, thread_index() / kAddedTile);
    const int key = step.first_key + thread_index() % kAddedTile;
    if (row.length < 0) sum = bits_float(0x7fc00000u);
    if (key < row.first || key >= row.end) continue;
    const int64_t kv_head = row.head / p.group;
    const T* const q = static_cast<const T*>(p.q.data) + p.q.at(row.batch, row.query, row.head);
    const T* const k = static_cast<const T*>(p.k.data) + p.k.at(row.batch, key, kv_head);
    const T* const v = static_cast<const T*>(p.v.data) + p.v.at(row.batch, key, kv_head);
    const T* const grad =
        static_cast<const T*>(a.b.grad.data) + a.b.grad.at(row.batch, row.query, row.head);
    float score = 0, product = 0;
    for (int i = 0; i < p.size; ++i) {
      score = opdock::fma(to_float(q[i]), to_float(k[i * p.key_element]), score);
      product = opdock::fma(to_float(grad[i * a.b.grad_element]), to_float(v[i]), product);
    }
    score = RowAdded<T>(p, row, row)(p, score * p.scale, key);
    make_weight(row.sums(a.b), true, &score, &product);
    sum += product;
  }
  tile[thread_index()] = sum;
  block_barrier();
  store_added<T, kAddedTile, kAddedTile>(a, steps.first, tile);
}

template <class T, int Size>
OPDOCK_DEVICE void added_tile(const AddedParams& a) {
  const Params& p = a.b.p;
  constexpr int kStage = 2 * (kTileVectors + kStreamVectors) * Size;
  T* const stages = dynamic_shared<T>();
  const AddedSteps<kTileVectors, kStreamVectors> steps(a);
  const WarpTile<T, Size> warp;
  const int first_row = thread_index() / 32 * kStep;
  const bool has_added = p.mask.data || p.bias.data || p.slopes;
  const T *const q = static_cast<const T*>(p.q.data), *const k = static_cast<const T*>(p.k.data);
  const T *const grad = static_cast<const T*>(a.b.grad.data), *const v =
                                                                  static_cast<const T*>(p.v.data);
  // Whether no query of the step sees one of its keys.
  const auto is_empty = [&](const AddedStep& step, int length) {
    const int last = step.first_query + kTileVectors < p.queries
                         ? step.first_query + kTileVectors - 1
                         : p.queries - 1;
    return length <= 0 || step.first_key >= p.end(length, p.position(length, last)) ||
           step.first_key + kStreamVectors <= p.first(p.position(length, step.first_query));
  };
  const auto copy = [&](int number, int stage) {
    const AddedStep step = steps[number / kStreamVectors];
    const int length = p.length(step.batch);
    if (is_empty(step, length)) return;
    copy_tiles<T, Size, kTileVectors>(
        p,
        [&](int vector, int tensor) {
          const int last = p.queries - 1;
          const int query = step.first_query + vector < last ? step.first_query + vector : last;
          return tensor == 0 ? q + p.q.at(step.batch, query, step.head)
                             : grad + a.b.grad.at(step.batch, query, step.head);
        },
        true, stages + stage * kStage);
    copy_tiles<T, Size, kStreamVectors>(
        p,
        [&](int vector, int tensor) {
          const int key = step.first_key + vector < length ? step.first_key + vector : length - 1;
          const int kv_head = step.head / p.group;
          return tensor == 0 ? k + p.k.at(step.batch, key, kv_head)
                             : v + p.v.at(step.batch, key, kv_head);
        },
        false, stages + stage * kStage + 2 * kTileVectors * Size);
  };
  typename WarpTile<T, Size>::Scores sums = {};
  bool is_bad = false;
  for_stream(0, static_cast<int>(steps.count) * kStreamVectors, copy, [&](int number, int stage) {
    const AddedStep step = steps[number / kStreamVectors];
    const int length = p.length(step.batch);
    if (length < 0) is_bad = true;
    if (is_empty(step, length)) return;
    const T* const fixed = stages + stage * kStage;
    const T* const keys = fixed + 2 * kTileVectors * Size;
    const T* const values = keys + kStreamVectors * Size;
    typename WarpTile<T, Size>::Scores score = {}, product = {};
    warp.multiply(fixed, first_row, keys, score);
    warp.multiply(fixed + kTileVectors * Size, first_row, values, product);
    warp.scale(p, score);
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      const AddedRow row(p, step, first_row + warp.g + 8 * i);
      const RowSums of = row.sums(a.b);
      const RowAdded<T> added(p, row, row);
      OPDOCK_UNROLL
      for (int s = 0; s < kStreamVectors / 8; ++s) {
        OPDOCK_UNROLL
        for (int j = 2 * i; j < 2 * i + 2; ++j) {
          const int key = step.first_key + warp.column_key(s, j);
          const bool is_seen = key >= row.first && key < row.end;
          if (has_added && is_seen) score[s][j] = added(p, score[s][j], key);
          make_weight(of, is_seen, &score[s][j], &product[s][j]);
          sums[s][j] += product[s][j];
        }
      }
    }
  });
  float* const tile = reinterpret_cast<float*>(stages);
  OPDOCK_UNROLL
  for (int s = 0; s < kStreamVectors / 8; ++s) {
    OPDOCK_UNROLL
    for (int j = 0; j < 4; ++j)
      tile[(first_row + warp.g + j / 2 * 8) * kStreamVectors + warp.column_key(s, j)] =
          is_bad ? bits_float(0x7fc00000u) : sums[s][j];
  }
  block_barrier();
  store_added<T, kTileVectors, kStreamVectors>(a, steps.first, tile);
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(kTileThreads, 2)
added_tiles(AddedParams a) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    added_tile<T, Size>(a);
  } else {
    trap();  // the host chooses another kernel
  }
}

}  // namespace attention
