// Softmax and log-softmax of rows begin … end-1 on the CPU, for one instruction set level.
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

// Scaled and masked scores of one row, as vectors: x * scale + mask. `shift` holds a mask with one
// element for the whole row, and 0 without a mask.
template <class T, bool IsMasked>
struct Scores {
  using C = typename simd::Compute<T>::type;
  const T* x;
  const T* mask;
  C scale, shift;

  // Returns the scores from element i on, minus `most`.
  template <class Vector>
  HWY_INLINE typename Vector::V at(Vector vector, int64_t i, C most) const {
    const typename Vector::D d;
    const auto by = hn::Set(d, scale), all = hn::Set(d, shift - most);
    if constexpr (IsMasked)
      return hn::Add(hn::MulAdd(vector.load(x + i), by, vector.load(mask + i)), all);
    return hn::MulAdd(vector.load(x + i), by, all);
  }
};

// A row's maximum and sum: softmax divides by the sum, log_softmax subtracts its logarithm.
template <class C>
struct Total {
  C most;      // largest score; 0 if none is finite
  double sum;  // sum of e^(score - most); 0 if all scores are -inf, NaN if one is NaN or +inf
};

// Returns the largest of `count` scores from `begin` on, at most a block.
template <class C, class Scores>
HWY_INLINE C maximum(const Scores& scores, int64_t begin, int64_t count) {
  simd::RowMaximum<C> of;
  simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
    of.add(slot, vector.or_else(scores.at(vector, begin + i, 0), kNegativeInfinity<C>));
  });
  return of.total();
}

// Returns the sum of e^(score - most), where `most` is at least the largest of these scores. Stores
// the terms, times kExpFactor, in `kept` if it is not null. If `most` is -inf, the sum is NaN where
// a score is NaN, and else 0.
template <class C, class Scores>
HWY_INLINE double exponentials(const Scores& scores, int64_t begin, int64_t count, C most,
                               C* kept) {
  simd::RowSum<C> added;
  const C subtract = most > kNegativeInfinity<C> ? most : C{0};
  if (kept) {
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      const auto e = simd::exp_times(d, scores.at(vector, begin + i, subtract));
      vector.store_whole(e, kept + i);
      added.add(slot, vector.or_else(e, 0));
    });
  } else {
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      const auto e = simd::exp_times(d, scores.at(vector, begin + i, subtract));
      added.add(slot, vector.or_else(e, 0));
    });
  }
  const double sum = added.total() / static_cast<double>(simd::kExpFactor<C>);
  return most > kNegativeInfinity<C> || sum != sum ? sum : 0;
}

// Returns the Total of a row longer than a block.
template <class C, class Scores>
Total<C> total(const Scores& scores, int64_t n) {
  C most = kNegativeInfinity<C>;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    const C here = maximum<C>(scores, begin, count);
    if (here > most) {
      if (sum != 0) sum *= __builtin_exp(static_cast<double>(most) - static_cast<double>(here));
      most = here;
    }
    sum += exponentials<C>(scores, begin, count, most, nullptr);
  }
  return {most > kNegativeInfinity<C> ? most : C{0}, sum};
}

// Sets the n elements at `out`, which are masked, to `value`.
template <class C, class T>
void fill(T* out, int64_t n, C value) {
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    vector.store(hn::Set(typename decltype(vector)::D(), value), out + i);
  });
}

// A row whose first n elements take part; the others are masked.
template <class T, bool IsMasked>
struct Row {
  using C = typename simd::Compute<T>::type;
  Scores<T, IsMasked> scores;
  T* out;
  int64_t n;
  C* kept;  // exponentials times kExpFactor, with room for whole vectors; null: not kept
  Total<C> of;
};

template <class T, bool IsMasked>
void finish(const Row<T, IsMasked>& row, int64_t length) {
  using C = typename simd::Compute<T>::type;
  const double exact =
      row.of.sum == 0 ? 0 : 1 / row.of.sum / static_cast<double>(simd::kExpFactor<C>);
  const C factor = static_cast<C>(exact),
          rest = static_cast<C>(exact - static_cast<double>(factor));
  // Returns e * factor; for elements as wide as the factor, `rest` compensates the factor's
  // rounding.
  const auto part = [&](auto d, auto e) HWY_ATTR {
    if constexpr (sizeof(T) == sizeof(C))
      return hn::MulAdd(e, hn::Set(d, factor), hn::Mul(e, hn::Set(d, rest)));
    else
      return hn::Mul(e, hn::Set(d, factor));
  };
  if (row.kept) {
    simd::for_row<C>(row.n, [&](auto vector, auto, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      vector.store(part(d, vector.load_whole(row.kept + i)), row.out + i);
    });
  } else {
    simd::for_row<C>(row.n, [&](auto vector, auto, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      const auto e = simd::exp_times(d, row.scores.at(vector, i, row.of.most));
      vector.store(part(d, e), row.out + i);
    });
  }
  if (row.n < length)
    fill<C>(row.out + row.n, length - row.n, factor * 0);  // NaN where the other elements are
}

// Does for log_softmax what finish() does for softmax.
template <class T, bool IsMasked>
void finish_log(const Row<T, IsMasked>& row, int64_t length) {
  using C = typename simd::Compute<T>::type;
  // The logarithm is held in two parts: rounded to one, it would add an error as large as a
  // result's own rounding, to the whole row.
  const double log_sum = row.of.sum == 0 ? 0 : __builtin_log(row.of.sum);
  const C high = static_cast<C>(log_sum), low = static_cast<C>(log_sum - static_cast<double>(high));
  simd::for_row<C>(row.n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    const auto score = row.scores.at(vector, i, row.of.most);
    vector.store(hn::Sub(hn::Sub(score, hn::Set(d, low)), hn::Set(d, high)), row.out + i);
  });
  if (row.n < length)
    fill<C>(row.out + row.n, length - row.n, high == high ? kNegativeInfinity<C> : high);
}

// Returns row r, at which the cursor stands, before its computation.
template <class T, bool IsMasked, class Cursor>
Row<T, IsMasked> take(const Job& job, const Cursor& cursor, int64_t r) {
  using C = typename simd::Compute<T>::type;
  const Params& p = job.params;
  const T* mask = p.mask ? static_cast<const T*>(p.mask) + cursor.offset(1) : nullptr;
  const C shift = mask && !IsMasked ? hn::GetLane(simd::load(simd::OneTag<C>(), mask)) : C{0};
  int64_t n = p.length;
  if (p.causal) {
    n = r % p.queries + 1 + p.length - p.queries;
    n = n < 0 ? 0 : n > p.length ? p.length : n;
  }
  const T* x = static_cast<const T*>(p.x) + cursor.offset(0);
  return {{x, mask, static_cast<C>(job.scale), shift},
          static_cast<T*>(p.out) + cursor.offset(2),
          n,
          nullptr,
          {0, 0}};
}

// This many short rows go through each pass together, so that no row waits for the previous one's
// result.
constexpr int kTogether = 4;

template <class T, bool IsMasked>
void rows(const Job& job, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const Params& p = job.params;
  const bool is_log = p.log;
  const auto write = [&](const Row<T, IsMasked>& row) {
    is_log ? finish_log(row, p.length) : finish(row, p.length);
  };
  simd::RowCursor<decltype(p.rows), 3> cursor(p.rows, begin);
  if (p.length > simd::kRowBlock<C>) {
    for (int64_t r = begin; r < end; ++r, cursor.next()) {
      Row<T, IsMasked> row = take<T, IsMasked>(job, cursor, r);
      row.of = total<C>(row.scores, row.n);
      write(row);
    }
    return;
  }
  // Each of these rows has room for whole vectors.
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(simd::FullTag<C>()));
  alignas(64) C buffer[simd::kRowBlock<C> + kTogether * kLanes];
  const int64_t room = (p.length + kLanes - 1) / kLanes * kLanes;
  const int64_t together = p.length <= simd::kRowBlock<C> / kTogether ? kTogether : 1;
  Row<T, IsMasked> row[kTogether];
  for (int64_t r = begin; r < end; r += together) {
    const int64_t count = end - r < together ? end - r : together;
    for (int64_t i = 0; i < count; ++i, cursor.next()) {
      row[i] = take<T, IsMasked>(job, cursor, r + i);
      if (!is_log) row[i].kept = buffer + i * room;
      row[i].of.most = maximum<C>(row[i].scores, 0, row[i].n);
    }
    for (int64_t i = 0; i < count; ++i) {
      Total<C>& of = row[i].of;
      of.sum = exponentials<C>(row[i].scores, 0, row[i].n, of.most, row[i].kept);
      if (!(of.most > kNegativeInfinity<C>)) of.most = 0;
    }
    for (int64_t i = 0; i < count; ++i) write(row[i]);
  }
}

void run(const Job& job, int64_t begin, int64_t end) {
  const bool is_masked = job.params.mask && job.params.mask_step;
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    is_masked ? rows<T, true>(job, begin, end) : rows<T, false>(job, begin, end);
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace softmax
