// Rotary embedding of tokens on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd_row.hpp"
//
#include "rope_cpu.h"

namespace rope {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// Pairs whose angles are loaded at a time, for all heads; a multiple of every vector's size.
constexpr int64_t kPairs = 256;

// Angles of pairs first … first + count - 1 of a token. If interleaved, each appears twice, and the
// sines have the signs that a pair's elements need. The rest of the last vector holds arbitrary
// values.
template <class C>
struct Angles {
  alignas(64) C cos[2 * kPairs] = {};
  alignas(64) C sin[2 * kPairs] = {};
  int64_t first, count;
};

template <class C, class E>
void load_angles(const Params& p, const E* cos, const E* sin, Angles<C>* out) {
  const simd::FullTag<C> d;
  const auto sign = hn::Set(d, static_cast<C>(p.inverse ? -1 : 1));
  simd::for_row<C>(out->count, [&](const auto& vector, auto, int64_t i) HWY_ATTR {
    const auto c = vector.load(cos + i), s = hn::Mul(vector.load(sin + i), sign);
    if (p.interleaved) {
      hn::StoreInterleaved2(c, c, d, out->cos + 2 * i);
      hn::StoreInterleaved2(hn::Neg(s), s, d, out->sin + 2 * i);
    } else {
      vector.store_whole(c, out->cos + i);
      vector.store_whole(s, out->sin + i);
    }
  });
}
inline void load_angles(const Params& p, const float* cos, const float* sin, Angles<double>* out) {
  double wide[2][kPairs];
  for (int64_t i = 0; i < out->count; ++i) {
    wide[0][i] = static_cast<double>(cos[i]);
    wide[1][i] = static_cast<double>(sin[i]);
  }
  load_angles<double, double>(p, wide[0], wide[1], out);
}

template <class T, class C>
void load_angles_at(const Params& p, int64_t position, Angles<C>* out) {
  const int64_t cos = position * p.cos_row + out->first, sin = position * p.sin_row + out->first;
  const auto load_as = [&](auto zero) {
    using E = decltype(zero);
    load_angles(p, static_cast<const E*>(p.cos) + cos, static_cast<const E*>(p.sin) + sin, out);
  };
  if (p.narrow_tables) {
    load_as(T{});
  } else {
    load_as(float{});
  }
}

// Turns each pair (a, b) into (a cos - b sin, b cos + a sin). `apart`: distance from a to b.
template <class T, class C>
HWY_INLINE void rotate_halves(const Angles<C>& angles, const T* in, T* out, int64_t apart) {
  simd::for_row<C>(angles.count, [&](const auto& vector, auto, int64_t i) HWY_ATTR {
    const auto cos = vector.load_whole(angles.cos + i), sin = vector.load_whole(angles.sin + i);
    const auto a = vector.load(in + i), b = vector.load(in + apart + i);
    vector.store(hn::MulSub(a, cos, hn::Mul(b, sin)), out + i);
    vector.store(hn::MulAdd(b, cos, hn::Mul(a, sin)), out + apart + i);
  });
}

template <class T, class C>
HWY_INLINE void rotate_neighbours(const Angles<C>& angles, const T* in, T* out) {
  if constexpr (hn::MaxLanes(simd::FullTag<C>()) == 1) {  // without SIMD vectors
    const simd::WholeVector<C> one;
    for (int64_t i = 0; i < 2 * angles.count; i += 2) {
      const auto cos = one.load_whole(angles.cos + i), sin = one.load_whole(angles.sin + i + 1);
      const auto a = one.load(in + i), b = one.load(in + i + 1);
      one.store(hn::MulSub(a, cos, hn::Mul(b, sin)), out + i);
      one.store(hn::MulAdd(b, cos, hn::Mul(a, sin)), out + i + 1);
    }
    return;
  }
  simd::for_row<C>(2 * angles.count, [&](const auto& vector, auto, int64_t i) HWY_ATTR {
    const auto cos = vector.load_whole(angles.cos + i), sin = vector.load_whole(angles.sin + i);
    const auto x = vector.load(in + i), other = hn::Reverse2(simd::FullTag<C>(), x);
    vector.store(hn::MulAdd(x, cos, hn::Mul(other, sin)), out + i);
  });
}

// Rotates one token's heads, of q or of k. With the last angles of a head (is_last), also copies
// the elements that are not rotated.
template <class T, class C>
HWY_INLINE void rotate_heads(const Params& p, const Heads& heads, const Params::Place& at,
                             const Angles<C>& angles, bool is_last) {
  const T* in =
      static_cast<const T*>(heads.in) + at.sequence * heads.in_sequence + at.token * heads.in_token;
  T* out =
      static_cast<T*>(heads.out) + at.sequence * heads.out_sequence + at.token * heads.out_token;
  for (int64_t h = 0; h < heads.count; ++h, in += heads.in_head, out += heads.out_head) {
    if (p.interleaved) {
      rotate_neighbours(angles, in + 2 * angles.first, out + 2 * angles.first);
    } else {
      rotate_halves(angles, in + angles.first, out + angles.first, p.rotated / 2);
    }
    if (is_last && p.copied > 0 && in != out)
      __builtin_memcpy(out + p.rotated, in + p.rotated, static_cast<size_t>(p.copied) * sizeof(T));
  }
}

template <class T>
void rotate_tokens(const Params& p, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const int64_t pairs = p.rotated / 2;
  Angles<C> angles;
  for (int64_t token = begin; token < end; ++token) {
    const Params::Place at = p.place(token);
    const int64_t position = p.position(at);
    for (angles.first = 0;; angles.first += kPairs) {
      const int64_t left = pairs - angles.first;
      angles.count = left < kPairs ? left : kPairs;
      load_angles_at<T>(p, position, &angles);
      rotate_heads<T>(p, p.q, at, angles, left <= kPairs);
      rotate_heads<T>(p, p.k, at, angles, left <= kPairs);
      if (left <= kPairs) break;
    }
  }
}

void rotate(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype,
                 [&](auto zero) { rotate_tokens<decltype(zero)>(job.params, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace rope
