// Rotary embedding on a GPU. A thread has two pieces of 16 bytes, or two elements, in one head of a
// token or in each of four, which it rotates by the same angles.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"
#include "rope_params.cuh"

namespace rope {

using namespace opdock;

// Loads `Count` elements of a table's row into to[Begin], to[Begin + 1], …. They are aligned to 16
// bytes, or to their total size.
template <int Begin, int Count, typename E, int Size>
OPDOCK_DEVICE void load_angles(const E* from, float (&to)[Size]) {
  if constexpr (Count == 1) {
    to[Begin] = to_float(*from);
  } else {
    constexpr int kWords = Count * static_cast<int>(sizeof(E)) / 4;
    uint32_t word[kWords];
    if constexpr (kWords == 2) {
      const Unit<8> both = load_unit<8>(from);
      word[0] = static_cast<uint32_t>(both);
      word[1] = static_cast<uint32_t>(both >> 32);
    } else {
      OPDOCK_UNROLL
      for (int i = 0; i < kWords; i += 4) {
        const Bytes16 part = load16(from + i * 4 / static_cast<int>(sizeof(E)));
        OPDOCK_UNROLL
        for (int w = 0; w < 4; ++w) word[i + w] = part.word[w];
      }
    }
    OPDOCK_UNROLL
    for (int j = 0; j < Count; ++j) {
      if constexpr (sizeof(E) == 4) {
        to[Begin + j] = bits_float(word[j]);
      } else if (j % 2 == 0) {
        pair_to_floats(E{}, word[j / 2], &to[Begin + j], &to[Begin + j + 1]);
      }
    }
  }
}

// Offsets in a head at which a thread's two pieces begin.
struct Pieces {
  int first, second;
};

// Multiplies two numbers that fit into 32 bits (see check_strides() in rope.cc).
template <typename A, typename B>
OPDOCK_DEVICE int64_t times(A a, B b) {
  return static_cast<int64_t>(static_cast<int32_t>(a)) * static_cast<int32_t>(b);
}

// Loads the cosines or sines of the pairs in both pieces from a row of a table.
template <bool Interleaved, typename E, int Size>
OPDOCK_DEVICE void load_row(const E* row, const Pieces& at, float (&to)[Size]) {
  if constexpr (Interleaved && Size > 1) {
    load_angles<0, Size / 2>(row + at.first / 2, to);
    load_angles<Size / 2, Size / 2>(row + at.second / 2, to);
  } else {
    load_angles<0, Size>(row + (Interleaved ? at.first / 2 : at.first), to);
  }
}

template <typename T, bool Interleaved, int Size>
OPDOCK_DEVICE void load_table(const Params& p, const void* table, int64_t offset, const Pieces& at,
                              float (&to)[Size]) {
  if (sizeof(T) == 4 || !p.narrow_tables) {
    load_row<Interleaved>(static_cast<const float*>(table) + offset, at, to);
  } else {
    load_row<Interleaved>(static_cast<const T*>(table) + offset, at, to);
  }
}

OPDOCK_DEVICE void rotate_pair(float cos, float sin, float& a, float& b) {
  const float before = a;
  a = opdock::fma(a, cos, -(b * sin));
  b = opdock::fma(b, cos, before * sin);
}

// Rotates both pieces. A pair is (a[j], b[j]) or, if interleaved, two consecutive elements.
template <bool Interleaved, int Size>
OPDOCK_DEVICE void rotate_pieces(const float (&cos)[Size], const float (&sin)[Size],
                                 float (&a)[Size], float (&b)[Size]) {
  if constexpr (Interleaved && Size > 1) {
    OPDOCK_UNROLL
    for (int j = 0; j < Size / 2; ++j) {
      rotate_pair(cos[j], sin[j], a[2 * j], a[2 * j + 1]);
      rotate_pair(cos[Size / 2 + j], sin[Size / 2 + j], b[2 * j], b[2 * j + 1]);
    }
  } else {
    OPDOCK_UNROLL
    for (int j = 0; j < Size; ++j) rotate_pair(cos[j], sin[j], a[j], b[j]);
  }
}

// The thread's heads, which are read from `in` and written to `out`.
template <typename T>
struct Group {
  const T* in;
  T* out;
  int in_step, out_step;  // from one head to the next
  int count;              // at most Heads
};

template <int Heads, typename T>
OPDOCK_DEVICE Group<T> find_group(const Params& p, int number, const Params::Place& at) {
  const bool is_k = number >= static_cast<int>(p.q_groups);
  const rope::Heads& heads = is_k ? p.k : p.q;
  const int head = (is_k ? number - static_cast<int>(p.q_groups) : number) * Heads;
  const int left = static_cast<int>(heads.count) - head;
  const T* in = static_cast<const T*>(heads.in) + times(at.token, heads.in_token) +
                times(head, heads.in_head);
  T* out =
      static_cast<T*>(heads.out) + times(at.token, heads.out_token) + times(head, heads.out_head);
  if (at.sequence > 0) {
    in += at.sequence * heads.in_sequence;
    out += at.sequence * heads.out_sequence;
  }
  return {in, out, static_cast<int>(heads.in_head), static_cast<int>(heads.out_head),
          left < Heads ? left : Heads};
}

template <int Heads, typename T, typename Piece, bool Interleaved>
OPDOCK_DEVICE void rotate_group(const Params& p, const Group<T>& group, const Params::Place& place,
                                const Pieces& at) {
  constexpr int kSize = Piece::kSize;
  Piece x[Heads][2];
  OPDOCK_UNROLL
  for (int h = 0; h < Heads; ++h) {
    if (h >= group.count) continue;
    load_piece(group.in + times(h, group.in_step) + at.first, &x[h][0]);
    load_piece(group.in + times(h, group.in_step) + at.second, &x[h][1]);
  }
  float cos[kSize], sin[kSize];
  const int64_t row = p.position(place);
  if (p.has_row(row)) {
    load_table<T, Interleaved>(p, p.cos, times(row, p.cos_row), at, cos);
    load_table<T, Interleaved>(p, p.sin, times(row, p.sin_row), at, sin);
  } else {
    OPDOCK_UNROLL
    for (int j = 0; j < kSize; ++j) cos[j] = sin[j] = infinity() - infinity();
  }
  if (p.inverse) {
    OPDOCK_UNROLL
    for (int j = 0; j < kSize; ++j) sin[j] = -sin[j];
  }
  OPDOCK_UNROLL
  for (int h = 0; h < Heads; ++h) {
    if (h >= group.count) continue;
    float a[kSize], b[kSize];
    to_floats(x[h][0], a);
    to_floats(x[h][1], b);
    rotate_pieces<Interleaved>(cos, sin, a, b);
    from_floats(a, &x[h][0]);
    from_floats(b, &x[h][1]);
    store_piece(group.out + times(h, group.out_step) + at.first, x[h][0]);
    store_piece(group.out + times(h, group.out_step) + at.second, x[h][1]);
  }
}

template <int Heads, typename T, typename Piece>
OPDOCK_DEVICE void copy_group(const Group<T>& group, const Pieces& at, int end) {
  Piece x[Heads][2];
  OPDOCK_UNROLL
  for (int h = 0; h < Heads; ++h) {
    const T* const in = group.in + times(h, group.in_step);
    if (h < group.count) load_piece(in + at.first, &x[h][0]);
    if (h < group.count && at.second < end) load_piece(in + at.second, &x[h][1]);
  }
  OPDOCK_UNROLL
  for (int h = 0; h < Heads; ++h) {
    T* const out = group.out + times(h, group.out_step);
    if (h < group.count) store_piece(out + at.first, x[h][0]);
    if (h < group.count && at.second < end) store_piece(out + at.second, x[h][1]);
  }
}

// Neighbouring threads have neighbouring pieces of a head, whichever elements are pairs.
template <int Heads, typename T, typename Piece>
OPDOCK_DEVICE void rotate_slot(const Params& p, const Group<T>& group, const Params::Place& place,
                               int slot) {
  constexpr int kSize = Piece::kSize;
  const int rotated = static_cast<int>(p.rotated), copied = static_cast<int>(p.copied);
  const int pairs = rotated / (2 * kSize);
  if (slot < pairs) {
    Pieces at = {slot * kSize, rotated / 2 + slot * kSize};
    if (!p.interleaved) {
      rotate_group<Heads, T, Piece, false>(p, group, place, at);
    } else {
      if (kSize == 1) at = {2 * slot, 2 * slot + 1};
      rotate_group<Heads, T, Piece, true>(p, group, place, at);
    }
    return;
  }
  const int end = rotated + copied, step = (copied / kSize + 1) / 2;
  if (slot - pairs >= step) return;
  const int first = rotated + (slot - pairs) * kSize;
  copy_group<Heads, T, Piece>(group, {first, first + step * kSize}, end);
}

// Rotates one head's piece where p.is_simple. Most of a small launch's time is spent before its
// threads request elements, which takes less code here than in find_group() and rotate_slot().
template <typename T, bool Interleaved>
OPDOCK_DEVICE void rotate_simple(const Params& p, int token, int number) {
  const bool is_k = number >= static_cast<int>(p.q_groups);
  const int head = is_k ? number - static_cast<int>(p.q_groups) : number;
  const T* const in = static_cast<const T*>(is_k ? p.k.in : p.q.in) +
                      times(token, is_k ? p.k.in_token : p.q.in_token) +
                      times(head, is_k ? p.k.in_head : p.q.in_head);
  T* const out = static_cast<T*>(is_k ? p.k.out : p.q.out) +
                 times(token, is_k ? p.k.out_token : p.q.out_token) +
                 times(head, is_k ? p.k.out_head : p.q.out_head);
  const int first = thread_index() * vector_size<T>;
  rotate_group<1, T, Packed<T>, Interleaved>(p, {in, out, 0, 0, 1}, {0, token},
                                             {first, first + static_cast<int>(p.rotated) / 2});
}

// The threads of a block are laid out as: pieces of a head, groups of heads, tokens. Blocks: a
// token's heads, tokens; and in the third dimension pieces, if a head has more of them than a block
// has threads.
template <class T, int Heads>
OPDOCK_KERNEL_BLOCKS(kThreads, Heads > 1 ? 4 : 6)
rotate(Params p) {
  pdl_wait_and_trigger();
  int token_block = block_index(), head_block = 0;
  if (p.head_blocks > 1) {
    const uint32_t blocks = static_cast<uint32_t>(p.head_blocks);
    const uint32_t number = static_cast<uint32_t>(block_index());
    token_block = static_cast<int>(number / blocks);
    head_block = static_cast<int>(number % blocks);
  }
  const int token = token_block * block_threads_z() + thread_index_z();
  const int number = head_block * block_threads_y() + thread_index_y();
  const int slot = block_index_z() * block_threads() + thread_index();
  if (token >= static_cast<int>(p.tokens) || number >= static_cast<int>(p.groups)) return;
  if (Heads == 1 && p.is_simple) {
    if (p.interleaved) {
      rotate_simple<T, true>(p, token, number);
    } else {
      rotate_simple<T, false>(p, token, number);
    }
    return;
  }
  const Params::Place place = p.place(token);
  const Group<T> group = find_group<Heads, T>(p, number, place);
  if (p.by_vectors) {
    rotate_slot<Heads, T, Packed<T>>(p, group, place, slot);
  } else {
    rotate_slot<Heads, T, Single<T>>(p, group, place, slot);
  }
}

}  // namespace rope
