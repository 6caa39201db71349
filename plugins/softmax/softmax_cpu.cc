// Softmax and its logarithm of rows begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "opdock/simd_exp.hpp"
#include "opdock/simd_row.hpp"
#include "softmax_cpu.h"

namespace softmax {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

template <class C>
constexpr C kNegativeInfinity = static_cast<C>(-HUGE_VAL);

// Scaled and masked scores of one row, as vectors: x * scale + mask. A mask of one element for the
// whole row, or none, is `shift`.
template <class T, bool IsMasked>
struct Scores {
  using C = typename simd::Compute<T>::type;
  const T* x;
  const T* mask;
  C scale, shift;

  // Those from element i on, less `most`.
  template <class Vector>
  HWY_INLINE typename Vector::V at(Vector vector, int64_t i, C most) const {
    const typename Vector::D d;
    const auto by = hn::Set(d, scale), all = hn::Set(d, shift - most);
    if constexpr (IsMasked)
      return hn::Add(hn::MulAdd(vector.load(x + i), by, vector.load(mask + i)), all);
    return hn::MulAdd(vector.load(x + i), by, all);
  }
};

// What a row is divided by, or what is subtracted from its scores.
template <class C>
struct Total {
  C most;      // of the scores; 0 if none is finite
  double sum;  // of e^(score - most); 0 if all scores are -inf, NaN if one is NaN or +inf
};

// Of n scores, at least 1. Unless `kept` is null, which holds for rows of one block only, their
// exponentials, times kExpFactor, are left there.
template <class C, class Scores>
Total<C> total(const Scores& scores, int64_t n, C* kept) {
  C most = kNegativeInfinity<C>;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    simd::RowMaximum<C> maximum;
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
      const auto score = scores.at(vector, begin + i, 0);
      maximum.add(slot, vector.or_else(score, kNegativeInfinity<C>));
    });
    const C most_here = maximum.total();
    if (most_here > most) {
      if (sum != 0)
        sum *= __builtin_exp(static_cast<double>(most) - static_cast<double>(most_here));
      most = most_here;
    }
    const bool is_finite_one_there = most > kNegativeInfinity<C>;
    const C subtract = is_finite_one_there ? most : C{0};
    simd::RowSum<C> added;
    if (kept) {
      simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
        const typename decltype(vector)::D d;
        const auto e = simd::exp_times(d, scores.at(vector, begin + i, subtract));
        vector.store(e, kept + i);
        added.add(slot, vector.or_else(e, 0));
      });
    } else {
      simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
        const typename decltype(vector)::D d;
        const auto e = simd::exp_times(d, scores.at(vector, begin + i, subtract));
        added.add(slot, vector.or_else(e, 0));
      });
    }
    const double here = added.total() / static_cast<double>(simd::kExpFactor<C>);
    // Of scores that are all -inf, or NaN, it says only whether there is a NaN.
    sum += is_finite_one_there || here != here ? here : 0;
  }
  return {most > kNegativeInfinity<C> ? most : C{0}, sum};
}

// Where elements have no part in it, from n on.
template <class C, class T>
void fill(T* out, int64_t n, C value) {
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    vector.store(hn::Set(typename decltype(vector)::D(), value), out + i);
  });
}

// The row's first n elements take part; the others are masked.
template <class T, class Scores>
void row(const Scores& scores, T* out, int64_t n, int64_t length) {
  using C = typename Scores::C;
  // Where exponentials are kept between the passes; of a longer row they are computed twice. Floats
  // in the output, which is written after x is read at the same place, so it may be x.
  alignas(64) C buffer[sizeof(T) == sizeof(C) ? 1 : simd::kRowBlock<C>];
  C* kept = nullptr;
  if (n <= simd::kRowBlock<C>) {
    if constexpr (sizeof(T) == sizeof(C)) {
      kept = out;
    } else {
      kept = buffer;
    }
  }
  const Total<C> of = n > 0 ? total<C>(scores, n, kept) : Total<C>{0, 0};
  const double exact = of.sum == 0 ? 0 : 1 / of.sum / static_cast<double>(simd::kExpFactor<C>);
  const C factor = static_cast<C>(exact),
          rest = static_cast<C>(exact - static_cast<double>(factor));
  // e * factor, rounded once for elements as wide as the factor.
  const auto part = [&](auto d, auto e) HWY_ATTR {
    if constexpr (sizeof(T) == sizeof(C))
      return hn::MulAdd(e, hn::Set(d, factor), hn::Mul(e, hn::Set(d, rest)));
    else
      return hn::Mul(e, hn::Set(d, factor));
  };
  if (kept) {
    simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      vector.store(part(d, vector.load(kept + i)), out + i);
    });
  } else {
    simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      vector.store(part(d, simd::exp_times(d, scores.at(vector, i, of.most))), out + i);
    });
  }
  fill<C>(out + n, length - n, factor * 0);  // NaN where the others are
}

// As row(), of the logarithm.
template <class T, class Scores>
void log_row(const Scores& scores, T* out, int64_t n, int64_t length) {
  using C = typename Scores::C;
  const Total<C> of = n > 0 ? total<C>(scores, n, nullptr) : Total<C>{0, 0};
  // In two parts: rounded to one, it would be off by as much as a result is, and in the whole row.
  const double log_sum = of.sum == 0 ? 0 : __builtin_log(of.sum);
  const C high = static_cast<C>(log_sum), low = static_cast<C>(log_sum - static_cast<double>(high));
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    const auto score = scores.at(vector, i, of.most);
    vector.store(hn::Sub(hn::Sub(score, hn::Set(d, low)), hn::Set(d, high)), out + i);
  });
  fill<C>(out + n, length - n, high == high ? kNegativeInfinity<C> : high);
}

template <class T>
void rows(const Job& job, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const Params& p = job.params;
  for (int64_t r = begin; r < end; ++r) {
    long long offset[3];
    p.rows.locate(r, offset);
    const T* x = static_cast<const T*>(p.x) + offset[0];
    const T* mask = p.mask ? static_cast<const T*>(p.mask) + offset[1] : nullptr;
    T* out = static_cast<T*>(p.out) + offset[2];
    int64_t n = p.length;
    if (p.causal) {
      n = r % p.queries + 1 + p.length - p.queries;
      n = n < 0 ? 0 : n > p.length ? p.length : n;
    }
    const C scale = static_cast<C>(job.scale);
    const auto by = [&](const auto& scores) HWY_ATTR {
      if (p.log) {
        log_row(scores, out, n, p.length);
      } else {
        row(scores, out, n, p.length);
      }
    };
    if (mask && p.mask_step) {
      by(Scores<T, true>{x, mask, scale, 0});
    } else {
      const C shift = mask ? hn::GetLane(simd::load(simd::OneTag<C>(), mask)) : C{0};
      by(Scores<T, false>{x, nullptr, scale, shift});
    }
  }
}

void run(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { rows<decltype(zero)>(job, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace softmax
