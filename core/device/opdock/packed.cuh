// 16 bytes of elements, for kernels that do arithmetic on many of them: words of 32 bits, which
// stay in registers as they were loaded. A word has two 16-bit elements.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/vector.cuh"

namespace opdock {

template <typename T>
struct Packed {
  static constexpr int kSize = vector_size<T>;
  Bytes16 bytes;

  OPDOCK_DEVICE T get(int j) const {
    if constexpr (sizeof(T) == 4) {
      return bits_float(bytes.word[j]);
    } else {
      return {static_cast<uint16_t>(bytes.word[j / 2] >> (j % 2 * 16))};
    }
  }
  OPDOCK_DEVICE void set(int j, T value) {
    uint32_t& word = bytes.word[j * static_cast<int>(sizeof(T)) / 4];
    if constexpr (sizeof(T) == 4) {
      word = float_bits(value);
    } else {
      const uint32_t bits = value.bits;
      word = j % 2 == 0 ? (word & 0xffff0000u) | bits : (word & 0xffffu) | bits << 16;
    }
  }
};
// One element, with the functions of a Packed.
template <typename T>
struct Single {
  static constexpr int kSize = 1;
  T value;

  OPDOCK_DEVICE T get(int) const { return value; }
  OPDOCK_DEVICE void set(int, T to) { value = to; }
};

// The number of elements of a Packed or Single, or of a reference to one, as decltype() may give.
template <typename Piece>
constexpr int piece_size = Piece::kSize;
template <typename Piece>
constexpr int piece_size<Piece&> = piece_size<Piece>;
template <typename Piece>
constexpr int piece_size<const Piece> = piece_size<Piece>;

// `from` and `to` are aligned to 16 bytes for a Packed, to an element for a Single.
template <typename T>
OPDOCK_DEVICE void load_piece(const T* from, Packed<T>* out) {
  out->bytes = load16(from);
}
template <typename T>
OPDOCK_DEVICE void load_piece(const T* from, Single<T>* out) {
  out->value = *from;
}
template <typename T>
OPDOCK_DEVICE void store_piece(T* to, const Packed<T>& piece) {
  store16(to, piece.bytes);
}
template <typename T>
OPDOCK_DEVICE void store_piece(T* to, const Single<T>& piece) {
  *to = piece.value;
}

template <typename T>
OPDOCK_DEVICE void fill_piece(T value, Packed<T>* out) {
  uint32_t word;
  if constexpr (sizeof(T) == 4) {
    word = float_bits(value);
  } else {
    word = value.bits | static_cast<uint32_t>(value.bits) << 16;
  }
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) out->bytes.word[i] = word;
}
template <typename T>
OPDOCK_DEVICE void fill_piece(T value, Single<T>* out) {
  out->value = value;
}

template <typename T>
OPDOCK_DEVICE void to_floats(const Packed<T>& piece, float (&out)[Packed<T>::kSize]) {
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4)
      out[i] = bits_float(piece.bytes.word[i]);
    else
      pair_to_floats(T{}, piece.bytes.word[i], &out[2 * i], &out[2 * i + 1]);
  }
}
template <typename T>
OPDOCK_DEVICE void to_floats(const Single<T>& piece, float (&out)[1]) {
  out[0] = to_float(piece.value);
}
// Rounds to nearest, ties to even.
template <typename T>
OPDOCK_DEVICE void from_floats(const float (&values)[Packed<T>::kSize], Packed<T>* out) {
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4)
      out->bytes.word[i] = float_bits(values[i]);
    else
      out->bytes.word[i] = floats_to_pair(T{}, values[2 * i], values[2 * i + 1]);
  }
}
template <typename T>
OPDOCK_DEVICE void from_floats(const float (&values)[1], Single<T>* out) {
  out->value = from_float<T>(values[0]);
}

// Returns the larger of each two elements; the other one if one is NaN.
template <typename T>
OPDOCK_DEVICE Packed<T> max_packed(const Packed<T>& a, const Packed<T>& b) {
  Packed<T> most;
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t x = a.bytes.word[i], y = b.bytes.word[i];
    if constexpr (sizeof(T) == 4)
      most.bytes.word[i] = float_bits(max(bits_float(x), bits_float(y)));
    else
      most.bytes.word[i] = max_pair(T{}, x, y);
  }
  return most;
}

// Returns 16 bytes, from byte `bytes` on (1 to 15, a multiple of T's size), of two adjacent
// vectors.
template <typename T>
OPDOCK_DEVICE Packed<T> cut_packed(const Packed<T>& low, const Packed<T>& high, int bytes) {
  uint32_t word[8];
  OPDOCK_UNROLL
  for (int i = 0; i < 8; ++i) word[i] = i < 4 ? low.bytes.word[i] : high.bytes.word[i - 4];
  // Shifts by two words, then by one, then by bits, so that no register is chosen by a number known
  // only at run time.
  OPDOCK_UNROLL
  for (int i = 0; i < 6; ++i) word[i] = (bytes & 8) != 0 ? word[i + 2] : word[i];
  OPDOCK_UNROLL
  for (int i = 0; i < 5; ++i) word[i] = (bytes & 4) != 0 ? word[i + 1] : word[i];
  const int bits = bytes % 4 * 8;
  Packed<T> cut;
  OPDOCK_UNROLL
  for (int i = 0; i < 4; ++i) cut.bytes.word[i] = funnel_right(word[i], word[i + 1], bits);
  return cut;
}

OPDOCK_DEVICE int misalignment(const void* address) {
  return static_cast<int>(reinterpret_cast<uint64_t>(address) & 15);
}

// Loads the piece at `column`, which lies inside, of `columns` elements of any alignment. bytes:
// its misalignment, which is the same for all vectors of a row.
template <typename T>
OPDOCK_DEVICE void load_operand(const T* operand, int64_t column, int64_t columns, int bytes,
                                Packed<T>* out) {
  const T* const from = operand + column;
  if (bytes == 0) {
    load_piece(from, out);
    return;
  }
  // The piece is cut out of the two aligned vectors in which it lies, if both are inside.
  const int elements = bytes / static_cast<int>(sizeof(T));
  const T* const low_at = from - elements;
  if (column >= elements && column - elements + 2 * vector_size<T> <= columns) {
    Packed<T> low, high;
    load_piece(low_at, &low);
    load_piece(low_at + vector_size<T>, &high);
    *out = cut_packed(low, high, bytes);
    return;
  }
  OPDOCK_UNROLL
  for (int j = 0; j < vector_size<T>; ++j) out->set(j, from[j]);
}
template <typename T>
OPDOCK_DEVICE void load_operand(const T* operand, int64_t column, int64_t, int, Single<T>* out) {
  out->value = operand[column];
}

}  // namespace opdock
