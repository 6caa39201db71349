// The gradients of attention on tensor cores, for 16-bit elements. As in backward.cuh one kernel
// goes through the keys for a tile of rows, and the other through the rows for a tile of keys: what
// a block keeps is called fixed here, what passes by the stream. A warp has 16 of the fixed
// vectors.
//
// No values are moved between lanes, because a sum may be taken in any order (tile.cuh): lane 4 g +
// t reads 16 bytes of vector g from element 32 c + 8 t on; and of the vectors that are multiplied
// by weights elements 64 u + 8 g … of vectors 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of each sixteen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backward.cuh"
#include "tile.cuh"

namespace attention {

// Returns where 16 bytes of a vector are in shared memory. Their order is permuted so that lanes
// that read at the same time, adjacent vectors or every second one, read from different banks.
template <int Size>
OPDOCK_DEVICE int shared_at(int vector, int piece) {
  const int permuted = piece ^ ((((vector >> 2) ^ vector) & 1) << 2 | (vector & 2));
  return vector * Size + permuted * 8;
}

// Starts to copy Count vectors of two tensors, those that begin at element at(vector, tensor), to
// two tiles, one behind the other. Elements beyond the head's size become 0 if is_fixed, otherwise
// they are others.
template <class T, int Size, int Count, class At>
OPDOCK_DEVICE void copy_tiles(const Params& p, const At& at, bool is_fixed, T* to) {
  constexpr int kPieces = Size / 8;
  OPDOCK_UNROLL
  for (int i = 0; i < Count * kPieces / kTileThreads; ++i) {
    const int number = i * kTileThreads + thread_index();
    const int vector = number / kPieces, piece = number % kPieces;
    const bool is_there = piece * 8 < p.size;
    OPDOCK_UNROLL
    for (int tensor = 0; tensor < 2; ++tensor) {
      T* const place = to + tensor * Count * Size + shared_at<Size>(vector, piece);
      if (is_fixed && !is_there)
        store16(place, Bytes16{});
      else
        copy_async16(place, at(vector, tensor) + (is_there ? piece * 8 : 0));
    }
  }
}

// The numbers of a row in the stream, from which its weights are computed.
struct StreamRow {
  RowSums sums;
  int first, end;  // range of the keys that it sees
};

// The products and sums of a warp.
template <class T, int Size>
struct WarpTile : Place {
  using Scores =
      float[kStreamVectors / 8][4];  // [s][2 i + j]: vector g + 8 i, of the stream 8 s + 2 t + j
  using Sums = float[Size / 8][4];

  // Multiplies sixteen fixed vectors, from number `first` on, with those of the stream.
  OPDOCK_DEVICE void multiply(const T* fixed, int first, const T* stream, Scores& to) const {
    OPDOCK_UNROLL
    for (int c = 0; c < Size / 32; ++c) {
      const Bytes16 a[2] = {load16(fixed + shared_at<Size>(first + g, 4 * c + t)),
                            load16(fixed + shared_at<Size>(first + g + 8, 4 * c + t))};
      OPDOCK_UNROLL
      for (int s = 0; s < kStreamVectors / 8; ++s) {
        const Bytes16 b = load16(stream + shared_at<Size>(8 * s + g, 4 * c + t));
        OPDOCK_UNROLL
        for (int h = 0; h < 2; ++h)
          multiply_add<T>(
              to[s],
              {a[0].word[2 * h], a[1].word[2 * h], a[0].word[2 * h + 1], a[1].word[2 * h + 1]},
              b.word[2 * h], b.word[2 * h + 1]);
      }
    }
  }

  // Turns products into exponents of 2.
  OPDOCK_DEVICE static void scale(const Params& p, Scores& products) {
    OPDOCK_UNROLL
    for (int s = 0; s < kStreamVectors / 8; ++s) {
      OPDOCK_UNROLL
      for (int j = 0; j < 4; ++j) products[s][j] *= p.scale;
    }
  }

  // Adds the vectors of the stream, multiplied by `by`, to sums.
  OPDOCK_DEVICE void add(const Scores& by, const T* stream, Sums& sums) const {
    OPDOCK_UNROLL
    for (int s = 0; s < kStreamVectors / 8; s += 2) {
      const uint32_t a[4] = {floats_to_pair(T{}, by[s][0], by[s][1]),
                             floats_to_pair(T{}, by[s][2], by[s][3]),
                             floats_to_pair(T{}, by[s + 1][0], by[s + 1][1]),
                             floats_to_pair(T{}, by[s + 1][2], by[s + 1][3])};
      OPDOCK_UNROLL
      for (int u = 0; u < Size / 64; ++u) {
        Bytes16 from[4];
        OPDOCK_UNROLL
        for (int i = 0; i < 4; ++i)
          from[i] = load16(stream + shared_at<Size>(8 * s + 2 * t + i % 2 + i / 2 * 8, 8 * u + g));
        OPDOCK_UNROLL
        for (int w = 0; w < 4; ++w) {
          const int n = 8 * u + 2 * w;
          multiply_add<T>(sums[n], a, low_halves(from[0].word[w], from[1].word[w]),
                          low_halves(from[2].word[w], from[3].word[w]));
          multiply_add<T>(sums[n + 1], a, high_halves(from[0].word[w], from[1].word[w]),
                          high_halves(from[2].word[w], from[3].word[w]));
        }
      }
    }
  }

  // Writes the sums of vector g + 8 i, multiplied by factor.
  OPDOCK_DEVICE void store(const BackwardParams& b, const Sums& sums, int i, float factor, T* to,
                           int64_t step) const {
    OPDOCK_UNROLL
    for (int u = 0; u < Size / 64; ++u) {
      OPDOCK_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int at = (8 * u + 2 * t + c) * 8;
        if (at >= b.p.size) continue;
        Bytes16 words;
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j)
          words.word[j] = floats_to_pair(T{}, sums[8 * u + 2 * j][2 * i + c] * factor,
                                         sums[8 * u + 2 * j + 1][2 * i + c] * factor);
        if (b.grads_by_vectors) {
          store16(to + at, words);
          continue;
        }
        OPDOCK_UNROLL
        for (int j = 0; j < 8; ++j)
          to[(at + j) * step] = {static_cast<uint16_t>(words.word[j / 2] >> (16 * (j % 2)))};
      }
    }
  }
};

// Turns the exponent of a row's score, and the product of its gradient with the value, into the
// weight and the gradient of the score, without the factor `scale`. Both are 0 if the row does not
// see the key.
OPDOCK_DEVICE void make_weight(const RowSums& sums, bool is_seen, float* exponent, float* product) {
  *exponent = is_seen ? sums.weight(*exponent) : 0.0f;
  *product = sums.score_grad(*exponent, *product);
}

// Goes through the stream, whose vectors are begin … end - 1, in steps of kStreamVectors: the next
// ones are copied meanwhile. copy(first, stage) starts to copy; use(first, stage) is called by all
// threads of the block.
template <class Copy, class Use>
OPDOCK_DEVICE void for_stream(int begin, int end, const Copy& copy, const Use& use) {
  int stage = 1;
  for (int first = begin - kStreamVectors; first < end; first += kStreamVectors) {
    if (first + kStreamVectors < end) copy(first + kStreamVectors, stage ^ 1);
    copy_async_commit();
    if (first >= begin) {
      copy_async_wait<1>();
      block_barrier();
      use(first, stage);
      block_barrier();
    }
    stage ^= 1;
  }
}

// Form: Batches or Sequences. Drop: KeptWeights or DroppedWeights.
template <class T, int Size, class Form, class Drop = KeptWeights>
OPDOCK_DEVICE void query_tile(const BackwardParams& b) {
  const Params& p = b.p;
  const int index = static_cast<int>(block_index());
  // Blocks of later queries begin first if these see more keys.
  const int tile = p.causal ? static_cast<int>(grid_blocks()) - 1 - index : index;
  const Block block = Form::rows(p, tile, kTileVectors, 0);
  if (Form::kMayBeEmpty && block.rows <= 0) return;
  T* const fixed = dynamic_shared<T>();
  T* const stages = fixed + 2 * kTileVectors * Size;
  const WarpTile<T, Size> warp;
  const int first_row = thread_index() / 32 * kStep;
  const Row rows[2] = {Row(p, block, first_row + warp.g), Row(p, block, first_row + warp.g + 8)};
  RowSums of[2];
  of[0].load(b, block, rows[0]);
  of[1].load(b, block, rows[1]);
  // The range of keys that at least one of this warp's rows sees.
  const int last_row = first_row + kStep < block.rows ? first_row + kStep - 1 : block.rows - 1;
  const int some_first = p.first(block.position(block.query_of(p, first_row)));
  const int some_end =
      first_row < block.rows ? p.end(block.length, block.position(block.query_of(p, last_row))) : 0;
  const bool has_added = p.mask.data || p.bias.data || p.slopes;
  typename WarpTile<T, Size>::Sums sums = {};
  if (block.first < block.end) {
    const T *const q = static_cast<const T*>(p.q.data), *const k = static_cast<const T*>(p.k.data);
    const T *const grad = static_cast<const T*>(b.grad.data), *const v =
                                                                  static_cast<const T*>(p.v.data);
    copy_tiles<T, Size, kTileVectors>(
        p,
        [&](int vector, int tensor) {
          const Row row(p, block, vector);
          return tensor == 0 ? q + p.q.at(block.batch, row.query, row.head)
                             : grad + b.grad.at(block.batch, row.query, row.head);
        },
        true, fixed);
    const auto copy = [&](int first, int stage) {
      copy_tiles<T, Size, kStreamVectors>(
          p,
          [&](int vector, int tensor) {
            int key = first + vector < block.end ? first + vector : block.end - 1;
            if (Drop::kDrops && key < block.first) key = block.first;
            return tensor == 0 ? k + p.k.at(block.key_batch, key, block.head)
                               : v + p.v.at(block.key_batch, key, block.head);
          },
          false, stages + stage * 2 * kStreamVectors * Size);
    };
    const Drop drop(p);
    // Blocks of random numbers are those of sixteen keys.
    const int begin = Drop::kDrops ? block.first / 16 * 16 : block.first;
    for_stream(begin, block.end, copy, [&](int first, int stage) {
      if (first >= some_end || first + kStreamVectors <= some_first) return;
      const T* const keys = stages + stage * 2 * kStreamVectors * Size;
      const T* const values = keys + kStreamVectors * Size;
      float score[kStreamVectors / 8][4] = {}, product[kStreamVectors / 8][4] = {};
      warp.multiply(fixed, first_row, keys, score);
      warp.multiply(fixed + kTileVectors * Size, first_row, values, product);
      warp.scale(p, score);
      if (has_added) {
        OPDOCK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const RowAdded<T> added(p, block, rows[i]);
          OPDOCK_UNROLL
          for (int s = 0; s < kStreamVectors / 8; ++s) {
            OPDOCK_UNROLL
            for (int j = 2 * i; j < 2 * i + 2; ++j) {
              const int key = first + warp.column_key(s, j);
              if (key < block.end) score[s][j] = added(p, score[s][j], key);
            }
          }
        }
      }
      if constexpr (Drop::kDrops) {
        OPDOCK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const unsigned long long of_row = drop.row(p, block, rows[i]);
          OPDOCK_UNROLL
          for (int s = 0; s < kStreamVectors / 8; s += 2)
            drop.drop(p, of_row, first + 8 * s, warp.t, p.drop.factor, &product[s][2 * i],
                      &product[s + 1][2 * i]);
        }
      }
      OPDOCK_UNROLL
      for (int s = 0; s < kStreamVectors / 8; ++s) {
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int key = first + warp.column_key(s, j);
          make_weight(of[j / 2], key >= rows[j / 2].first && key < rows[j / 2].end, &score[s][j],
                      &product[s][j]);
        }
      }
      warp.add(product, keys, sums);
    });
  }
  const float factor = block.is_bad ? bits_float(0x7fc00000u) : b.scale;
  OPDOCK_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (!rows[i].exists) continue;
    T* const to =
        static_cast<T*>(b.grad_q.data) + b.grad_q.at(block.batch, rows[i].query, rows[i].head);
    warp.store(b, sums, i, factor, to, 1);
  }
}

template <class T, int Size, class Form, class Drop = KeptWeights>
OPDOCK_DEVICE void key_tile(const BackwardParams& b) {
  const Params& p = b.p;
  int tile = static_cast<int>(block_index());
  const Block block = Form::of_keys(p, kTileVectors, &tile);
  const KeyBlock keys(p, block, tile, kTileVectors);
  if (Form::kMayBeEmpty && keys.count <= 0) return;
  const int warp_number = thread_index() / 32;
  const KeyBlock own(p, block, tile * (kTileVectors / kStep) + warp_number, kStep);
  T* const fixed = dynamic_shared<T>();
  T* const stages = fixed + 2 * kTileVectors * Size;
  StreamRow* const stream_rows = reinterpret_cast<StreamRow*>(stages + 4 * kStreamVectors * Size);
  const WarpTile<T, Size> warp;
  const Drop drop(p);
  const bool has_added = p.mask.data || p.bias.data || p.slopes;
  typename WarpTile<T, Size>::Sums key_sums = {}, value_sums = {};
  if (keys.first_row < keys.end_row) {
    const T *const q = static_cast<const T*>(p.q.data), *const k = static_cast<const T*>(p.k.data);
    const T *const grad = static_cast<const T*>(b.grad.data), *const v =
                                                                  static_cast<const T*>(p.v.data);
    copy_tiles<T, Size, kTileVectors>(
        p,
        [&](int vector, int tensor) {
          const int key =
              keys.first + vector < block.length ? keys.first + vector : block.length - 1;
          return tensor == 0 ? k + p.k.at(block.key_batch, key, block.head)
                             : v + p.v.at(block.key_batch, key, block.head);
        },
        true, fixed);
    const auto copy = [&](int first, int stage) {
      copy_tiles<T, Size, kStreamVectors>(
          p,
          [&](int vector, int tensor) {
            const int number = first + vector < keys.end_row ? first + vector : keys.end_row - 1;
            const Row row(p, block, number);
            return tensor == 0 ? q + p.q.at(block.batch, row.query, row.head)
                               : grad + b.grad.at(block.batch, row.query, row.head);
          },
          false, stages + stage * 2 * kStreamVectors * Size);
      if (thread_index() >= kStreamVectors) return;
      const int number = first + thread_index();
      const Row row(p, block, number < keys.end_row ? number : keys.end_row - 1);
      StreamRow& to = stream_rows[stage * kStreamVectors + thread_index()];
      to.sums.load(b, block, row);
      to.first = row.first;
      to.end = number < keys.end_row ? row.end : 0;
    };
    for_stream(keys.first_row, keys.end_row, copy, [&](int first, int stage) {
      if (first >= own.end_row || first + kStreamVectors <= own.first_row) return;
      const T* const queries = stages + stage * 2 * kStreamVectors * Size;
      const T* const grads = queries + kStreamVectors * Size;
      float score[kStreamVectors / 8][4] = {}, product[kStreamVectors / 8][4] = {};
      warp.multiply(fixed, warp_number * kStep, queries, score);
      warp.multiply(fixed + kTileVectors * Size, warp_number * kStep, grads, product);
      warp.scale(p, score);
      if (has_added) {
        OPDOCK_UNROLL
        for (int s = 0; s < kStreamVectors / 8; ++s) {
          OPDOCK_UNROLL
          for (int j = 0; j < 2; ++j) {
            const RowAdded<T> added(p, block, Row(p, block, first + warp.column_key(s, j)));
            OPDOCK_UNROLL
            for (int i = 0; i < 2; ++i) {
              const int key = own.first + warp.g + 8 * i;
              if (key < block.keys) score[s][2 * i + j] = added(p, score[s][2 * i + j], key);
            }
          }
        }
      }
      OPDOCK_UNROLL
      for (int s = 0; s < kStreamVectors / 8; ++s) {
        OPDOCK_UNROLL
        for (int j = 0; j < 2; ++j) {
          const StreamRow row = stream_rows[stage * kStreamVectors + warp.column_key(s, j)];
          float factor[2] = {1.0f, 1.0f};
          if constexpr (Drop::kDrops) {
            const Row at(p, block, first + warp.column_key(s, j));
            const PhiloxWords words = drop.words(drop.row(p, block, at), own.first + warp.g);
            const bool is_odd = warp.g % 2 != 0;
            factor[0] = p.drop.keeps(is_odd ? words.word[1] : words.word[0]) ? p.drop.factor : 0.0f;
            factor[1] = p.drop.keeps(is_odd ? words.word[3] : words.word[2]) ? p.drop.factor : 0.0f;
          }
          OPDOCK_UNROLL
          for (int i = 0; i < 2; ++i) {
            const int key = own.first + warp.g + 8 * i;
            if constexpr (Drop::kDrops) product[s][2 * i + j] *= factor[i];
            make_weight(row.sums, key >= row.first && key < row.end, &score[s][2 * i + j],
                        &product[s][2 * i + j]);
            if constexpr (Drop::kDrops) score[s][2 * i + j] *= factor[i];
          }
        }
      }
      warp.add(product, queries, key_sums);
      warp.add(score, grads, value_sums);
    });
  }
  const float bad = bits_float(0x7fc00000u);
  OPDOCK_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int key = own.first + warp.g + 8 * i;
    if (key >= block.keys) continue;
    T* const grad_k =
        static_cast<T*>(b.grad_k.data) + b.grad_k.at(block.key_batch, key, block.head);
    T* const grad_v =
        static_cast<T*>(b.grad_v.data) + b.grad_v.at(block.key_batch, key, block.head);
    warp.store(b, key_sums, i, block.is_bad ? bad : b.scale, grad_k, b.grad_k_element);
    warp.store(b, value_sums, i, block.is_bad ? bad : 1.0f, grad_v, 1);
  }
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(kTileThreads, 2)
backward_query_tiles(BackwardParams b) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    query_tile<T, Size, Batches>(b);
  } else {
    trap();  // the host chooses another kernel
  }
}

template <class T, int Size>
OPDOCK_KERNEL_BLOCKS(kTileThreads, 2)
backward_key_tiles(BackwardParams b) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    key_tile<T, Size, Batches>(b);
  } else {
    trap();  // the host chooses another kernel
  }
}

}  // namespace attention
