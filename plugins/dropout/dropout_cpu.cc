// Dropout of elements begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "dropout_cpu.h"

namespace dropout {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// Elements handled at a time, so that their numbers and masks stay in the first-level cache.
constexpr int64_t kChunk = 1024;

// Returns value * factor for the kept elements, whose bits in `keep` are all ones, and 0 for the
// others.
template <class D>
HWY_INLINE hn::VFromD<D> kept(D d, hn::VFromD<D> value, const uint32_t* keep,
                              hn::TFromD<D> factor) {
  const hn::Rebind<int32_t, D> d32;
  const auto bits = hn::LoadU(d32, reinterpret_cast<const int32_t*>(keep));
  const auto scaled = hn::Mul(value, hn::Set(d, factor));
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::And(scaled, hn::BitCast(d, hn::PromoteTo(hn::Rebind<int64_t, D>(), bits)));
  } else {
    return hn::And(scaled, hn::BitCast(d, bits));
  }
}

template <class T, bool HasResidual = false>
void drop(const Params& p, int64_t first, int64_t count, const uint32_t* keep) {
  using C = typename simd::Compute<T>::type;
  const T* const x = static_cast<const T*>(p.x) + first;
  T* const out = static_cast<T*>(p.out) + first;
  const T* const residual = HasResidual ? static_cast<const T*>(p.residual) + first : nullptr;
  const C factor = static_cast<C>(p.scale);
  simd::for_each_vector<C>(count, [&](auto d, int64_t i) HWY_ATTR {
    auto value = kept(d, simd::load(d, x + i), keep + i, factor);
    if constexpr (HasResidual) value = hn::Add(value, simd::load(d, residual + i));
    simd::store(d, value, out + i);
  });
}

// Draws the call's numbers from number `first` on into to[result], to[result + 1], …. Draws whole
// blocks, of which the compiler computes several at a time. `to` has room for six more than
// `count`.
int64_t draw(const opdock::RandomSource& random, int64_t first, int64_t count, uint32_t* to) {
  const unsigned long long at = random.offset + static_cast<unsigned long long>(first);
  const int64_t skip = static_cast<int64_t>(at & 3);
  const int64_t blocks = (skip + count + 3) / 4;
  for (int64_t block = 0; block < blocks; ++block) {
    const opdock::PhiloxWords words =
        opdock::random_block(random.seed, (at + 4 * static_cast<unsigned long long>(block)) >> 2);
    for (int64_t k = 0; k < 4; ++k) to[4 * block + k] = words.word[k];
  }
  return skip;
}

template <class T>
void forward_of(const Params& p, int64_t begin, int64_t end) {
  uint32_t number[kChunk + 6], keep[kChunk];
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t count = end - first < kChunk ? end - first : kChunk;
    const uint32_t* const drawn = number + draw(p.random, first, count, number);
    const Threshold threshold = p.threshold;
    unsigned char* const mask = p.mask + first;
    for (int64_t i = 0; i < count; ++i) {
      const bool is_kept = threshold.keeps(drawn[i]);
      mask[i] = is_kept;
      keep[i] = is_kept ? ~uint32_t{0} : 0;
    }
    if (p.residual) {
      drop<T, true>(p, first, count, keep);
    } else {
      drop<T>(p, first, count, keep);
    }
  }
}

template <class T>
void backward_of(const Params& p, int64_t begin, int64_t end) {
  const uint32_t all = p.threshold.is_reachable ? ~uint32_t{0} : 0;
  uint32_t keep[kChunk];
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t count = end - first < kChunk ? end - first : kChunk;
    const unsigned char* const mask = p.mask + first;
    for (int64_t i = 0; i < count; ++i) keep[i] = mask[i] != 0 ? all : 0;
    drop<T>(p, first, count, keep);
  }
}

void forward(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { forward_of<decltype(zero)>(job.params, begin, end); });
}
void backward(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype,
                 [&](auto zero) { backward_of<decltype(zero)>(job.params, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace dropout
