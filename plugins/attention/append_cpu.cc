// append_kv on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "attention_cpu.h"

namespace attention {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

template <class C, class T>
HWY_INLINE C get(const void* data, int64_t at) {
  return hn::GetLane(simd::load(hn::CappedTag<C, 1>(), static_cast<const T*>(data) + at));
}
template <class C, class T>
HWY_INLINE void put(C value, void* data, int64_t at) {
  const hn::CappedTag<C, 1> one;
  simd::store(one, hn::Set(one, value), static_cast<T*>(data) + at);
}

// Loads one head, and rotates it by the angles of `place` if `rotates` is true and there are
// tables.
template <class T, class C>
HWY_INLINE void load_head(const AppendParams& p, const Heads& from, int64_t b, int64_t t, int64_t h,
                          int64_t place, bool rotates, C* out) {
  const int64_t first = from.at(b, t, h);
  for (int i = 0; i < p.size; ++i) out[i] = get<C, T>(from.data, first + i);
  if (!rotates || !p.cos) return;
  for (int i = 0; i < p.rotated / 2; ++i) {
    const int a = p.interleaved ? 2 * i : i, other = p.partner(a);
    const int64_t c_at = place * p.cos_row + i, s_at = place * p.sin_row + i;
    const C c = p.narrow_tables ? get<C, T>(p.cos, c_at)
                                : static_cast<C>(static_cast<const float*>(p.cos)[c_at]);
    const C s = p.narrow_tables ? get<C, T>(p.sin, s_at)
                                : static_cast<C>(static_cast<const float*>(p.sin)[s_at]);
    const C x = out[a], y = out[other];
    out[a] = x * c - y * s;
    out[other] = y * c + x * s;
  }
}

// Rounds to E4M3, to nearest, ties to even; |value| <= 448 or NaN.
inline unsigned char to_float8(float value) {
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  const unsigned sign = bits >> 24 & 0x80u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<unsigned char>(sign | 0x7fu);
  if (rest < 0x3c800000u)  // a subnormal number: a multiple of 2^-9
    return static_cast<unsigned char>(
        sign |
        (__builtin_bit_cast(unsigned, __builtin_bit_cast(float, rest) + 16384.0f) - 0x46800000u));
  return static_cast<unsigned char>(sign |
                                    ((rest - 0x3c000000u + 0x7ffffu + (rest >> 20 & 1u)) >> 20));
}

template <class T, class C>
HWY_INLINE void put_head(const AppendParams& p, const Heads& cache, const Scales& scales, int64_t b,
                         int64_t place, int64_t h, const C* head) {
  const int64_t first = cache.at(b, place, h);
  if (p.cache == kSame) {
    for (int i = 0; i < p.size; ++i) put<C, T>(head[i], cache.data, first + i);
    return;
  }
  float most = 0;
  for (int i = 0; i < p.size; ++i) {
    const float magnitude = __builtin_fabsf(static_cast<float>(head[i]));
    if (magnitude > most || magnitude != magnitude) most = magnitude;
    if (most != most) break;
  }
  const float largest = p.cache == kInt8 ? 127.0f : 448.0f;
  const bool is_zero = most * 1e30f < 1.0f;  // too small to divide by
  const float factor = is_zero ? 0.0f : largest / most;
  for (int i = 0; i < p.size; ++i) {
    const float x = static_cast<float>(head[i]) * factor;
    const float bounded = !(x > -largest) ? -largest : x < largest ? x : largest;
    static_cast<unsigned char*>(cache.data)[first + i] =
        p.cache == kInt8 ? static_cast<unsigned char>(
                               __builtin_bit_cast(unsigned, bounded + 12582912.0f) & 0xffu)
                         : to_float8(bounded);
  }
  scales.data[scales.at(b, place, h)] = is_zero ? 0.0f : most / largest;
}

template <class T>
void append_some(const AppendParams& p, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  C head[kMaxSize];
  for (int64_t token = begin; token < end; ++token) {
    const int64_t b = token / p.tokens, t = token % p.tokens, place = p.place(b, t);
    for (int64_t h = 0; h < p.heads; ++h) {
      load_head<T>(p, p.q, b, t, h, place, true, head);
      const int64_t to = p.out.at(b, t, h);
      for (int i = 0; i < p.size; ++i) put<C, T>(head[i], p.out.data, to + i);
    }
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      load_head<T>(p, p.k, b, t, h, place, true, head);
      put_head<T>(p, p.k_cache, p.k_scale, b, place, h, head);
      load_head<T>(p, p.v, b, t, h, place, false, head);
      put_head<T>(p, p.v_cache, p.v_scale, b, place, h, head);
    }
  }
}

void append_tokens(const AppendJob& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype,
                 [&](auto zero) { append_some<decltype(zero)>(job.params, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace attention
