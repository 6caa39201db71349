// Writes new keys and values into the cache, rotated and quantized on the way: a warp handles one
// head of a token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "append_params.cuh"
#include "opdock/device.cuh"

namespace attention {

using namespace opdock;

// Rounds to E4M3, to nearest, ties to even; |value| <= 448 or NaN.
OPDOCK_DEVICE uint32_t float_to_float8(float value) {
  const uint32_t bits = float_bits(value), sign = bits >> 24 & 0x80u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return sign | 0x7fu;
  // Below the smallest normal number, adding 2^14 rounds to multiples of 2^-9.
  if (rest < 0x3c800000u) return sign | (float_bits(bits_float(rest) + 16384.0f) - 0x46800000u);
  return sign | ((rest - 0x3c000000u + 0x7ffffu + (rest >> 20 & 1u)) >> 20);
}
OPDOCK_DEVICE uint32_t float_to_int8(float value) {
  // The last bits of the sum are the number, rounded to nearest, ties to even.
  return float_bits(value + 12582912.0f) & 0xffu;
}

template <class T>
struct Head {
  const T* data;
  const AppendParams& p;
  int64_t place;  // the token's place; below 0 the head must not be rotated

  OPDOCK_DEVICE float table(const void* of, int64_t row, int at) const {
    const int64_t from = place * row + at;
    return p.narrow_tables ? to_float(static_cast<const T*>(of)[from])
                           : static_cast<const float*>(of)[from];
  }
  OPDOCK_DEVICE float get(int at, bool rotates) const {
    const float own = to_float(data[at]);
    if (!rotates || at >= p.rotated) return own;
    const int partner = p.partner(at), pair = p.pair(at);
    const float other = to_float(data[partner]);
    const float c = table(p.cos, p.cos_row, pair), s = table(p.sin, p.sin_row, pair);
    return at < partner ? opdock::fma(own, c, -(other * s)) : opdock::fma(own, c, other * s);
  }
};

template <class T>
OPDOCK_KERNEL(kAppendThreads)
append(AppendParams p) {
  pdl_wait_and_trigger();
  constexpr int kMax = kMaxSize / 32;
  const int warps = kAppendThreads / warp_width();
  const int lane = thread_index() % warp_width();
  const int64_t job = block_index() * warps + thread_index() / warp_width();
  const int each = p.heads + 2 * p.kv_heads;
  const int64_t token = job / each;
  if (token >= p.batch * p.tokens) return;
  int64_t head = job - token * each;
  const int64_t b = token / p.tokens, t = token - b * p.tokens;
  const int64_t place = p.place(b, t);
  const bool is_q = head < p.heads, is_k = !is_q && head < p.heads + p.kv_heads;
  head -= is_q ? 0 : is_k ? p.heads : p.heads + p.kv_heads;
  const Heads& from = is_q ? p.q : is_k ? p.k : p.v;
  const Head<T> in = {static_cast<const T*>(from.data) + from.at(b, t, head), p, place};
  const bool rotates = p.cos && (is_q || is_k) && place >= 0;
  if (!is_q && place < 0) return;

  float value[kMax];
  float most = 0;
  OPDOCK_UNROLL
  for (int i = 0; i < kMax; ++i) {
    const int at = lane + i * warp_width();
    value[i] = at < p.size ? in.get(at, rotates) : 0.0f;
    most = max_or_nan(most, opdock::abs(value[i]));
  }
  if (is_q) {
    T* const to = static_cast<T*>(p.out.data) + p.out.at(b, t, head);
    OPDOCK_UNROLL
    for (int i = 0; i < kMax; ++i) {
      const int at = lane + i * warp_width();
      if (at < p.size) to[at] = from_float<T>(place < 0 ? bits_float(0x7fc00000u) : value[i]);
    }
    return;
  }
  const Heads& cache = is_k ? p.k_cache : p.v_cache;
  const int64_t first = cache.at(b, place, head);
  if (p.cache == kSame) {
    OPDOCK_UNROLL
    for (int i = 0; i < kMax; ++i) {
      const int at = lane + i * warp_width();
      if (at < p.size) static_cast<T*>(cache.data)[first + at] = from_float<T>(value[i]);
    }
    return;
  }
  for (int mask = 1; mask < warp_width(); mask *= 2)
    most = max_or_nan(most, shuffle_xor(most, mask));
  const float largest = p.cache == kInt8 ? 127.0f : 448.0f;
  const float scale = most / largest;
  // If the largest magnitude is too small to divide by, everything becomes 0.
  const bool is_zero = most * 1e30f < 1.0f;
  const float factor = is_zero ? 0.0f : largest / most;
  OPDOCK_UNROLL
  for (int i = 0; i < kMax; ++i) {
    const int at = lane + i * warp_width();
    if (at >= p.size) continue;
    const float x = value[i] * factor;
    const float bounded = opdock::min(opdock::max(x, -largest), largest);
    static_cast<uint8_t*>(cache.data)[first + at] =
        static_cast<uint8_t>(p.cache == kInt8 ? float_to_int8(bounded) : float_to_float8(bounded));
  }
  if (lane == 0) {
    const Scales& scales = is_k ? p.k_scale : p.v_scale;
    scales.data[scales.at(b, place, head)] = is_zero ? 0.0f : scale;
  }
}

}  // namespace attention
