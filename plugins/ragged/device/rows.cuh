// Copies of rows: the embedding of tokens, the last token of each sequence, and new keys and
// values, which are rotated on the way to their blocks. A block of threads handles one token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "angles.cuh"
#include "opdock/device.cuh"
#include "opdock/packed.cuh"
#include "ragged_params.cuh"

namespace ragged {

using namespace opdock;

// Calls f(at, piece) for each of this thread's pieces of a row; piece says their type.
template <class T, class F>
OPDOCK_DEVICE void for_pieces(int64_t columns, int by_vectors, const F& f) {
  if (by_vectors) {
    for (int64_t i = thread_index(); i < columns / vector_size<T>; i += block_threads())
      f(i * vector_size<T>, Packed<T>{});
  } else {
    for (int64_t i = thread_index(); i < columns; i += block_threads()) f(i, Single<T>{});
  }
}

template <class T>
OPDOCK_DEVICE void fill_row(T* to, float value, int64_t columns, int by_vectors) {
  for_pieces<T>(columns, by_vectors, [&](int64_t at, auto piece) {
    fill_piece(from_float<T>(value), &piece);
    store_piece(to + at, piece);
  });
}
template <class T>
OPDOCK_DEVICE void copy_row(const T* from, T* to, int64_t columns, int by_vectors) {
  for_pieces<T>(columns, by_vectors, [&](int64_t at, auto piece) {
    load_piece(from + at, &piece);
    store_piece(to + at, piece);
  });
}

OPDOCK_DEVICE float not_a_number() {
  return bits_float(0x7fc00000u);
}

template <class T>
OPDOCK_KERNEL(kThreads)
embed(EmbedParams p) {
  pdl_wait_and_trigger();
  const int64_t token = block_index();
  T* const to = static_cast<T*>(p.out) + token * p.columns;
  if (token >= p.batch.counts[0]) return fill_row(to, 0.0f, p.columns, p.by_vectors);
  const int64_t id = p.id(token);
  if (!p.has_word(id)) return fill_row(to, not_a_number(), p.columns, p.by_vectors);
  const T* const word = static_cast<const T*>(p.table) + id * p.table_row;
  if (!p.positions) return copy_row(word, to, p.columns, p.by_vectors);
  const T* const place = static_cast<const T*>(p.positions) + p.place(token) * p.positions_row;
  for_pieces<T>(p.columns, p.by_vectors, [&](int64_t at, auto piece) {
    constexpr int kSize = piece_size<decltype(piece)>;
    auto other = piece;
    float a[kSize], b[kSize];
    load_piece(word + at, &piece);
    load_piece(place + at, &other);
    to_floats(piece, a);
    to_floats(other, b);
    OPDOCK_UNROLL
    for (int i = 0; i < kSize; ++i) a[i] += b[i];
    from_floats(a, &piece);
    store_piece(to + at, piece);
  });
}

template <class T>
OPDOCK_KERNEL(kThreads)
last(LastParams p) {
  pdl_wait_and_trigger();
  T* const to = static_cast<T*>(p.out) + block_index() * p.columns;
  const int64_t row = p.last(block_index());
  if (row < 0) return fill_row(to, 0.0f, p.columns, p.by_vectors);
  copy_row(static_cast<const T*>(p.x) + row * p.x_row, to, p.columns, p.by_vectors);
}

// Rotates pair pieces of a head: `from` and `to` are at its first element, `first` is the number of
// the first pair. Angles are in shared memory: the cosines, then the sines.
template <class T, class Piece>
OPDOCK_DEVICE void rotate_pairs(const T* from, T* to, int pairs, int first, const float* angles,
                                bool has_place, Piece) {
  constexpr int kSize = piece_size<Piece>;
  Piece low, high;
  load_piece(from + first, &low);
  load_piece(from + pairs + first, &high);
  float a[kSize], b[kSize];
  to_floats(low, a);
  to_floats(high, b);
  OPDOCK_UNROLL
  for (int i = 0; i < kSize; ++i) {
    const float c = angles[first + i], s = angles[kMaxPairs + first + i], x = a[i], y = b[i];
    a[i] = has_place ? opdock::fma(x, c, -(y * s)) : not_a_number();
    b[i] = has_place ? opdock::fma(y, c, x * s) : not_a_number();
  }
  from_floats(a, &low);
  from_floats(b, &high);
  store_piece(to + first, low);
  store_piece(to + pairs + first, high);
}

template <class T, class Piece>
OPDOCK_DEVICE void append_heads(const AppendParams& p, int64_t token, int64_t place,
                                const float* angles, Piece piece) {
  constexpr int kSize = piece_size<Piece>;
  const T* const k = static_cast<const T*>(p.k) + token * p.k_row;
  const T* const v = static_cast<const T*>(p.v) + token * p.v_row;
  T* const cache = static_cast<T*>(p.cache) + place;
  const int turned = p.q ? p.pairs / kSize : 0;  // pieces of each half that is rotated
  if (turned > 0) {
    T* const q = static_cast<T*>(p.q) + token * p.q_row;
    const int jobs = (p.heads + (place < 0 ? 0 : p.kv_heads)) * turned;
    for (int job = thread_index(); job < jobs; job += block_threads()) {
      const int head = job / turned, first = (job - head * turned) * kSize;
      if (head < p.heads) {
        T* const at = q + int64_t{head} * p.size;
        rotate_pairs(at, at, p.pairs, first, angles, place >= 0, piece);
      } else {
        const int of = head - p.heads;
        rotate_pairs(k + int64_t{of} * p.size, cache + of * p.cache_head, p.pairs, first, angles,
                     true, piece);
      }
    }
  }
  if (place < 0) return;
  // The rest of the keys, then the values.
  const int begin = turned > 0 ? 2 * p.pairs : 0;
  const int rest = (p.size - begin) / kSize, whole = p.size / kSize;
  const int keys = p.kv_heads * rest, all = keys + p.kv_heads * whole;
  for (int job = thread_index(); job < all; job += block_threads()) {
    const bool is_key = job < keys;
    const int index = is_key ? job : job - keys, each = is_key ? rest : whole;
    const int head = index / each;
    const int at = (is_key ? begin : 0) + (index - head * each) * kSize;
    load_piece((is_key ? k : v) + int64_t{head} * p.size + at, &piece);
    store_piece(cache + (is_key ? 0 : p.cache_kind) + head * p.cache_head + at, piece);
  }
}

template <class T>
OPDOCK_KERNEL(kThreads)
append(AppendParams p) {
  pdl_wait_and_trigger();
  OPDOCK_SHARED(float, angles, 2 * kMaxPairs);
  const int64_t token = block_index();
  if (token >= p.batch.counts[0]) return;
  const int sequence = p.batch.of_token[token];
  const int64_t position = p.batch.position(token, sequence);
  const int64_t place = p.place(sequence, position);
  if (p.q) {
    for (int i = thread_index(); i < p.pairs; i += block_threads())
      cosine_and_sine(static_cast<float>(position) * p.frequencies[i], &angles[i],
                      &angles[kMaxPairs + i]);
    block_barrier();
  }
  if (p.by_vectors) {
    append_heads<T>(p, token, place, angles, Packed<T>{});
  } else {
    append_heads<T>(p, token, place, angles, Single<T>{});
  }
}

}  // namespace ragged
