// Updates elements begin … end-1 of a tensor on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "adam_cpu.h"

namespace adam {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// 16-bit elements are converted to float and back in pieces of this size, which stay in the
// first-level cache.
constexpr int64_t kPiece = 512;

template <class C>
const Factors<C>& factors_of(const Job& job) {
  if constexpr (sizeof(C) == 8) {
    return job.by;
  } else {
    return job.by_float;
  }
}

// Returns before * old + factor * value + more, rounded once to the size of `old`.
template <class C, class D, class V>
HWY_INLINE V blend(D d, const Factor<C>& before, V old, V factor, V value, V more) {
  const V added = hn::MulAdd(hn::Set(d, before.low), old, more);
  return hn::MulAdd(hn::Set(d, before.high), old, hn::MulAdd(factor, value, added));
}

template <class C, bool kPlainGrads>
void step(const Job& job, C* weight, const C* grad, C* mean, C* square, int64_t n) {
  const Factors<C> by = factors_of<C>(job);
  const C rest1 = static_cast<C>(job.rest1), rest2 = static_cast<C>(job.rest2),
          weight_decay = static_cast<C>(job.weight_decay), scale = static_cast<C>(job.scale),
          sign = static_cast<C>(job.sign), eps = static_cast<C>(job.eps);
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, weight + i);
    auto g = hn::LoadU(d, grad + i);
    if constexpr (!kPlainGrads) {
      g = hn::Mul(hn::Div(g, hn::Set(d, scale)), hn::Set(d, sign));
      if (weight_decay != 0) g = hn::MulAdd(hn::Set(d, weight_decay), w, g);
    }
    const auto zero = hn::Zero(d);
    const auto m = blend(d, by.beta1, hn::LoadU(d, mean + i), hn::Set(d, rest1), g, zero);
    const auto v =
        blend(d, by.beta2, hn::LoadU(d, square + i), hn::Mul(hn::Set(d, rest2), g), g, zero);
    hn::StoreU(m, d, mean + i);
    hn::StoreU(v, d, square + i);
    const auto change = hn::Div(m, hn::Add(hn::Sqrt(v), hn::Set(d, eps)));
    const auto rest = hn::Mul(hn::Set(d, -by.rate.low), change);
    const auto moved = blend(d, by.keep, w, hn::Set(d, -by.rate.high), change, rest);
    hn::StoreU(moved, d, weight + i);
  });
}

template <class C>
void step(const Job& job, C* weight, const C* grad, C* mean, C* square, int64_t n) {
  if (job.scale == 1 && job.sign == 1 && job.weight_decay == 0) {
    step<C, true>(job, weight, grad, mean, square, n);
  } else {
    step<C, false>(job, weight, grad, mean, square, n);
  }
}

#if HWY_NATIVE_FMA
void step_floats(const Job& job, float* weight, const float* grad, float* mean, float* square,
                 int64_t n) {
  step<float>(job, weight, grad, mean, square, n);
}
#else
// Computes in double: without FMA each product would be rounded, which loses Factor's extra digits.
void step_floats(const Job& job, float* weight, const float* grad, float* mean, float* square,
                 int64_t n) {
  const float* const from[4] = {weight, grad, mean, square};
  float* const to[4] = {weight, nullptr, mean, square};
  double room[4][kPiece];
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t count = n - at < kPiece ? n - at : kPiece;
    for (int k = 0; k < 4; ++k)
      for (int64_t i = 0; i < count; ++i) room[k][i] = static_cast<double>(from[k][at + i]);
    step<double>(job, room[0], room[1], room[2], room[3], count);
    for (int k = 0; k < 4; ++k)
      for (int64_t i = 0; to[k] != nullptr && i < count; ++i)
        to[k][at + i] = static_cast<float>(room[k][i]);
  }
}
#endif

bool is_float(opdock_dtype dtype) {
  return dtype.code == OPDOCK_DTYPE_FLOAT && dtype.bits == 32;
}

// Returns elements of an array of any dtype as float: in place if they are float, else in `room`.
float* widen(opdock_dtype dtype, const void* array, int64_t begin, int64_t n, float* room) {
  if (is_float(dtype)) return static_cast<float*>(const_cast<void*>(array)) + begin;
  simd::dispatch(dtype, [&](auto zero) {
    if constexpr (sizeof zero == 2) {
      const auto* from = static_cast<const decltype(zero)*>(array) + begin;
      simd::for_each_vector<float>(
          n, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(simd::load(d, from + i), d, room + i); });
    }
  });
  return room;
}

void narrow(opdock_dtype dtype, const float* from, void* array, int64_t begin, int64_t n) {
  if (is_float(dtype)) return;  // they were computed in place
  simd::dispatch(dtype, [&](auto zero) {
    if constexpr (sizeof zero == 2) {
      auto* to = static_cast<decltype(zero)*>(array) + begin;
      simd::for_each_vector<float>(
          n, [&](auto d, int64_t i) HWY_ATTR { simd::store(d, hn::LoadU(d, from + i), to + i); });
    }
  });
}

void update(const Job& job, const Arrays& a, int64_t begin, int64_t end) {
  if (job.weight.bits == 64) {
    return step<double>(job, static_cast<double*>(a.weight) + begin,
                        static_cast<const double*>(a.grad) + begin,
                        static_cast<double*>(a.average) + begin,
                        static_cast<double*>(a.square) + begin, end - begin);
  }
  if (is_float(job.weight) && is_float(job.grad) && is_float(job.average) && a.copy == nullptr) {
    return step_floats(
        job, static_cast<float*>(a.weight) + begin, static_cast<const float*>(a.grad) + begin,
        static_cast<float*>(a.average) + begin, static_cast<float*>(a.square) + begin, end - begin);
  }
  HWY_ALIGN float room[4][kPiece];
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t n = end - at < kPiece ? end - at : kPiece;
    float* const weight = widen(job.weight, a.weight, at, n, room[0]);
    const float* const grad = widen(job.grad, a.grad, at, n, room[1]);
    float* const mean = widen(job.average, a.average, at, n, room[2]);
    float* const square = widen(job.average, a.square, at, n, room[3]);
    step_floats(job, weight, grad, mean, square, n);
    narrow(job.weight, weight, a.weight, at, n);
    narrow(job.average, mean, a.average, at, n);
    narrow(job.average, square, a.square, at, n);
    if (a.copy != nullptr) narrow(job.copy, weight, a.copy, at, n);
  }
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace adam
