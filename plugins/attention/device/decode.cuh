// A few queries over a long cache. A block has eight rows and a part of the keys. Its warps take
// steps of keys in turn and load them directly into registers; the next keys are loaded while the
// current ones are multiplied.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tile.cuh"

namespace attention {

// Eight rows per warp. The result's tiles are transposed, elements by rows, so that the whole tile
// is used: values are the left matrix and weights the right one. Lane 4 g + t has the weights of
// row g where the products left them.
template <class T, int Size, int Kind>
struct FewRows : Lane<T, Size, Kind> {
  using Of = Lane<T, Size, Kind>;
  using Of::g, Of::t;

  uint32_t q[Size / 16][2];
  float out[Size / 16][4] =
      {};                    // two elements of rows 2 t and 2 t + 1, then the elements after them
  float most = -infinity();  // maximum of row g
  float sum = 0;             // sum over this lane's keys

  // Adds a step's products with eight keys; only rows g of the tile are used.
  OPDOCK_DEVICE void multiply_keys(const Bytes16& vector, int c, float (&score)[4]) const {
    const Pairs<T, Kind> k(vector);
    OPDOCK_UNROLL
    for (int h = 0; h < Of::kElements / 4; ++h) {
      const uint32_t (&from)[2] = q[c * (Of::kElements / 4) + h];
      multiply_add<T>(score, {from[0], 0, from[1], 0}, k.word[2 * h], k.word[2 * h + 1]);
    }
  }

  // Turns scores into weights, relative to the maximum over all keys so far.
  OPDOCK_DEVICE void make_weights(float (&score)[2][4]) {
    float now = most;
    OPDOCK_UNROLL
    for (int j = 0; j < 4; ++j) now = opdock::max(now, score[j / 2][j % 2]);
    now = opdock::max(now, shuffle_xor(now, 1));
    now = opdock::max(now, shuffle_xor(now, 2));
    if (vote_any(now > most)) {
      const float factor = weight(most, now);
      most = now;
      sum *= factor;
      const float of_row[2] = {shuffle(factor, 8 * t), shuffle(factor, 8 * t + 4)};
      OPDOCK_UNROLL
      for (int n = 0; n < Size / 16; ++n) {
        OPDOCK_UNROLL
        for (int j = 0; j < 4; ++j) out[n][j] *= of_row[j % 2];
      }
    }
    OPDOCK_UNROLL
    for (int j = 0; j < 4; ++j) {
      float& one = score[j / 2][j % 2];
      one = weight(one, most);
      sum += one;
    }
  }

  // Adds the values of sixteen keys, multiplied by their weights. vectors[i]: those of value
  // value_of(i).
  OPDOCK_DEVICE void add_values(const float (&score)[2][4],
                                const Bytes16 (&vectors)[4][Of::kValueVectors]) {
    const uint32_t low = floats_to_pair(T{}, score[0][0], score[0][1]);
    const uint32_t high = floats_to_pair(T{}, score[1][0], score[1][1]);
    OPDOCK_UNROLL
    for (int u = 0; u < Of::kValueVectors; ++u) {
      const Pairs<T, Kind> v[4] = {Pairs<T, Kind>(vectors[0][u]), Pairs<T, Kind>(vectors[1][u]),
                                   Pairs<T, Kind>(vectors[2][u]), Pairs<T, Kind>(vectors[3][u])};
      OPDOCK_UNROLL
      for (int w = 0; w < Of::kElements / 2; ++w)
        multiply_add<T>(
            out[u * (Of::kElements / 2) + w],
            {low_halves(v[0].word[w], v[1].word[w]), high_halves(v[0].word[w], v[1].word[w]),
             low_halves(v[2].word[w], v[3].word[w]), high_halves(v[2].word[w], v[3].word[w])},
            low, high);
    }
  }

  // Stores this warp's results for `rows` rows for finish_rows().
  OPDOCK_DEVICE void leave(int rows, int warp, float* stats, float* sums) {
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    if (t == 0 && g < rows) {
      stats[2 * (warp * rows + g)] = most;
      stats[2 * (warp * rows + g) + 1] = sum;
    }
    OPDOCK_UNROLL
    for (int c = 0; c < 2; ++c) {
      const int row = 2 * t + c;
      if (row >= rows) continue;
      OPDOCK_UNROLL
      for (int n = 0; n < Size / 16; n += 2) {
        constexpr int kEach = Of::kElements / 2;
        float* const to =
            sums + (warp * rows + row) * Size + (n / kEach * 8 + g) * Of::kElements + n % kEach * 2;
        store16(to, {{float_bits(out[n][c]), float_bits(out[n][2 + c]), float_bits(out[n + 1][c]),
                      float_bits(out[n + 1][2 + c])}});
      }
    }
  }
};

template <class T, int Size, int Kind>
struct CacheReader {
  using Of = Lane<T, Size, Kind>;
  using Element = Unit<16 / Of::kElements>;
  const Element *keys, *values;  // those of this batch and head
  int64_t key_step, value_step;
  int last;

  OPDOCK_DEVICE CacheReader(const Params& p, const Block& block)
      : keys(static_cast<const Element*>(p.k.data) + p.k.at(block.key_batch, 0, block.head)),
        values(static_cast<const Element*>(p.v.data) + p.v.at(block.key_batch, 0, block.head)),
        key_step(p.k.token),
        value_step(p.v.token),
        last(block.end - 1) {}

  // Indices beyond the last key are clamped to it; no row sees the duplicates.
  OPDOCK_DEVICE int place(int key) const { return key < last ? key : last; }
  OPDOCK_DEVICE void load_keys(const Params& p, const Of& lane, int first,
                               Bytes16 (&to)[2][Of::kKeyVectors]) const {
    OPDOCK_UNROLL
    for (int i = 0; i < 2; ++i) {
      const Element* const from = keys + place(first + lane.key_of(i)) * key_step;
      OPDOCK_UNROLL
      for (int c = 0; c < Of::kKeyVectors; ++c) to[i][c] = load16(from + lane.key_element(p, c));
    }
  }
  OPDOCK_DEVICE void load_values(const Params& p, const Of& lane, int first,
                                 Bytes16 (&to)[4][Of::kValueVectors]) const {
    OPDOCK_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Element* const from = values + place(first + lane.value_of(i)) * value_step;
      OPDOCK_UNROLL
      for (int u = 0; u < Of::kValueVectors; ++u)
        to[i][u] = load16(from + lane.value_element(p, u));
    }
  }
};

template <class T, int Size, int Kind>
OPDOCK_DEVICE void decode_rows(const Params& p) {
  const int index = static_cast<int>(block_index());
  const int number = index / p.splits, split = index - number * p.splits;
  const Block block = Batches::rows(p, number, kDecodeRows, split);
  const int warp = thread_index() / 32;
  constexpr int kWarps = kDecodeThreads / 32;
  using Of = FewRows<T, Size, Kind>;
  Of few;
  const Row rows[1] = {Row(p, block, few.g)};
  few.load_query(p, block, rows[0], few.q);
  const int all_first = block.all_first(p, block.rows - 1), all_end = block.all_end(p, 0);

  const CacheReader<T, Size, Kind> cache(p, block);
  Bytes16 k[2][Of::kKeyVectors], v[4][Of::kValueVectors];
  int key = block.first + warp * kStep;
  if (key < block.end) cache.load_keys(p, few, key, k);
  while (key < block.end) {
    cache.load_values(p, few, key, v);
    float score[2][4] = {};
    OPDOCK_UNROLL
    for (int c = 0; c < Of::kKeyVectors; ++c) {
      OPDOCK_UNROLL
      for (int i = 0; i < 2; ++i) few.multiply_keys(k[i][c], c, score[i]);
    }
    const int next = key + kWarps * kStep;
    if (next < block.end) cache.load_keys(p, few, next, k);
    const bool all = key >= all_first && key + kStep <= all_end && key + kStep <= block.end;
    make_scores<T, 1, 2>(few, p, block, rows, key, all, Kind != kSame, score);
    few.make_weights(score);
    if constexpr (Kind != kSame) {
      OPDOCK_UNROLL
      for (int i = 0; i < 4; ++i)
        score[i / 2][i % 2] *=
            scale_at(p.v_scale, block, cache.place(key + few.column_key(i / 2, i)));
    }
    few.add_values(score, v);
    key = next;
  }

  float* const stats = dynamic_shared<float>();
  float* const sums = stats + 2 * kWarps * kDecodeRows;
  few.leave(block.rows, warp, stats, sums);
  block_barrier();
  finish_rows<T, Size>(p, block, split, kWarps, stats, sums, kDecodeRows);
}

template <class T, int Size, int Kind>
OPDOCK_KERNEL_BLOCKS(kDecodeThreads, 2)
decode(Params p) {
  pdl_wait_and_trigger();
  if constexpr (kHasMatrices) {
    decode_rows<T, Size, Kind>(p);
  } else {
    trap();  // the host chooses another kernel
  }
}

}  // namespace attention
