// append_kv if everything can be moved by 16 bytes and the cache has the queries' type. A thread
// handles one such piece of a head, and also reads the piece that it is rotated with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "append_params.cuh"
#include "opdock/device.cuh"
#include "opdock/packed.cuh"

namespace attention {

using namespace opdock;

// Loads Count floats of a table, whose rows begin at multiples of 16 bytes.
template <int Count>
OPDOCK_DEVICE void load_angles(const void* table, int64_t from, float (&to)[Count]) {
  const float* const data = static_cast<const float*>(table) + from;
  if constexpr (Count % 4 == 0) {
    OPDOCK_UNROLL
    for (int i = 0; i < Count; i += 4) {
      const Bytes16 four = load16(data + i);
      OPDOCK_UNROLL
      for (int j = 0; j < 4; ++j) to[i + j] = bits_float(four.word[j]);
    }
  } else {
    OPDOCK_UNROLL
    for (int i = 0; i < Count; ++i) to[i] = data[i];
  }
}

// Rotates the piece that begins at element `at` of a head, whose elements are at `head`.
template <class T>
OPDOCK_DEVICE void rotate_piece(const AppendParams& p, const T* head, int at, int64_t place,
                                float (&value)[vector_size<T>]) {
  constexpr int kPiece = vector_size<T>;
  if (p.interleaved) {
    float c[kPiece / 2], s[kPiece / 2];
    load_angles(p.cos, place * p.cos_row + at / 2, c);
    load_angles(p.sin, place * p.sin_row + at / 2, s);
    OPDOCK_UNROLL
    for (int i = 0; i < kPiece; i += 2) {
      const float a = value[i], b = value[i + 1];
      value[i] = opdock::fma(a, c[i / 2], -(b * s[i / 2]));
      value[i + 1] = opdock::fma(b, c[i / 2], a * s[i / 2]);
    }
    return;
  }
  float other[kPiece], c[kPiece], s[kPiece];
  const int partner = p.partner(at);
  Packed<T> piece;
  load_piece(head + partner, &piece);
  to_floats(piece, other);
  load_angles(p.cos, place * p.cos_row + p.pair(at), c);
  load_angles(p.sin, place * p.sin_row + p.pair(at), s);
  OPDOCK_UNROLL
  for (int i = 0; i < kPiece; ++i)
    value[i] = opdock::fma(value[i], c[i], at < partner ? -(other[i] * s[i]) : other[i] * s[i]);
}

// The grid has a block column per token, and as many blocks in it as the heads' pieces take.
template <class T>
OPDOCK_KERNEL(kAppendThreads)
append_pieces(AppendParams p) {
  pdl_wait_and_trigger();
  constexpr int kPiece = vector_size<T>;
  const int pieces = p.size / kPiece, each = p.heads + 2 * p.kv_heads;
  const int item = static_cast<int>(block_index_y()) * kAppendThreads + thread_index();
  int head = item / pieces;
  if (head >= each) return;
  const int at = (item - head * pieces) * kPiece;
  const auto token = static_cast<uint32_t>(block_index());
  const uint32_t b = token / static_cast<uint32_t>(p.tokens);
  const uint32_t t = token - b * static_cast<uint32_t>(p.tokens);
  const int64_t place = p.place(b, t);
  const bool is_q = head < p.heads, is_k = !is_q && head < p.heads + p.kv_heads;
  if (!is_q && place < 0) return;
  head -= is_q ? 0 : is_k ? p.heads : p.heads + p.kv_heads;
  const Heads& from = is_q ? p.q : is_k ? p.k : p.v;
  const Heads& cache = is_k ? p.k_cache : p.v_cache;
  const T* const data = static_cast<const T*>(from.data) + from.at(b, t, head);
  T* const to = is_q ? static_cast<T*>(p.out.data) + p.out.at(b, t, head)
                     : static_cast<T*>(cache.data) + cache.at(b, place, head);
  Packed<T> piece;
  load_piece(data + at, &piece);
  if (place < 0 || ((is_q || is_k) && at < p.rotated)) {
    float value[kPiece];
    to_floats(piece, value);
    if (place >= 0) {
      rotate_piece(p, data, at, place, value);
    } else {
      OPDOCK_UNROLL
      for (float& x : value) x = bits_float(0x7fc00000u);
    }
    from_floats(value, &piece);
  }
  store_piece(to + at, piece);
}

}  // namespace attention
