// Softmax of rows begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "softmax_cpu.h"

namespace softmax {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// Scaled and masked scores of one row, as vectors.
template <class T>
struct Scores {
  using C = typename simd::Compute<T>::type;
  const T* x;
  const T* mask;
  int64_t mask_step;
  C scale;

  template <class D>
  HWY_INLINE hn::VFromD<D> at(D d, int64_t i) const {
    const auto scaled = hn::Mul(simd::load(d, x + i), hn::Set(d, scale));
    if (!mask) return scaled;
    if (mask_step) return hn::Add(scaled, simd::load(d, mask + i));
    return hn::Add(scaled, hn::Set(d, hn::GetLane(simd::load(simd::OneTag<C>(), mask))));
  }
};

// e^v, and NaN for NaN, which Highway's Exp turns into 0.
template <class D, class V>
HWY_INLINE V exponential(D d, V v) {
  return hn::IfThenElse(hn::Eq(v, v), hn::Exp(d, v), v);
}

// Half-width rows up to this length keep their exponentials on the stack; longer ones compute them
// twice.
constexpr int64_t kBuffer = 4096;

// The row's first n elements take part; the others are masked.
template <class T>
void row(const Scores<T>& scores, T* out, int64_t n, int64_t length) {
  using C = typename simd::Compute<T>::type;
  if (n == 0) {
    for (int64_t i = 0; i < length; ++i) out[i] = T{};
    return;
  }

  // Where scores, and then exponentials, are kept between the passes: float rows in the output
  // itself, which is written after x is read at the same place, so it may be x.
  alignas(64) C buffer[sizeof(T) == sizeof(C) ? 1 : kBuffer];
  C* kept = nullptr;
  if constexpr (sizeof(T) == sizeof(C)) {
    kept = out;
  } else if (n <= kBuffer) {
    kept = buffer;
  }

  simd::Maximum<C> maximum;
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto score = scores.at(d, i);
    if (kept) simd::store(d, score, kept + i);
    maximum.add(score);
  });
  // Without any finite score the exponentials are all 0, except those of NaNs.
  C most = maximum.total();
  if (most == static_cast<C>(-HUGE_VAL)) most = 0;

  simd::Sum<C> sum;
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto score = kept ? hn::LoadU(d, kept + i) : scores.at(d, i);
    const auto e = exponential(d, hn::Sub(score, hn::Set(d, most)));
    if (kept) simd::store(d, e, kept + i);
    sum.add(e);
  });
  const C total = sum.total();
  const C factor = total == 0 ? C{0} : C{1} / total;
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto e =
        kept ? hn::LoadU(d, kept + i) : exponential(d, hn::Sub(scores.at(d, i), hn::Set(d, most)));
    simd::store(d, hn::Mul(e, hn::Set(d, factor)), out + i);
  });
  simd::for_each_vector<C>(length - n, [&](auto d, int64_t i) HWY_ATTR {
    simd::store(d, hn::Set(d, factor * 0), out + n + i);  // NaN where the others are
  });
}

template <class T>
void rows(const Job& job, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const Params& p = job.params;
  for (int64_t r = begin; r < end; ++r) {
    long long offset[3];
    p.rows.locate(r, offset);
    const T* mask = static_cast<const T*>(p.mask);
    const Scores<T> scores = {static_cast<const T*>(p.x) + offset[0],
                              mask ? mask + offset[1] : nullptr, p.mask_step,
                              static_cast<C>(job.scale)};
    int64_t n = p.length;
    if (p.causal) {
      n = r % p.queries + 1 + p.length - p.queries;
      n = n < 0 ? 0 : n > p.length ? p.length : n;
    }
    row(scores, static_cast<T*>(p.out) + offset[2], n, p.length);
  }
}

void run(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { rows<decltype(zero)>(job, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace softmax
