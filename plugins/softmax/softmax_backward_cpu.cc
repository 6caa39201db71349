// The gradients of softmax and log_softmax for rows begin … end-1 on the CPU, for one instruction
// set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include <algorithm>

#include "opdock/simd_exp.hpp"
#include "opdock/simd_row.hpp"
#include "softmax_cpu.h"

namespace softmax {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// Returns vectors of -inf, the result of log_softmax for masked elements.
template <class D>
HWY_INLINE hn::VFromD<D> masked(D d) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(-HUGE_VAL));
}

// Returns the address of a row's element i. For a gradient with one element per row that is an
// array of kCopies copies of the element.
template <class H, class T>
HWY_INLINE const T* at(const T* grad, int64_t i) {
  return H::kBroadcast ? grad : grad + i;
}
constexpr int64_t kCopies = 256;  // more elements than any vector has

// Returns the sum of grad * result, or for log_softmax of grad, over the n elements of a row.
template <class C, class H, class T>
HWY_INLINE double sum_of_row(const T* grad, const T* result, int64_t n) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    simd::RowSum<C> added;
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
      const auto g = vector.load(at<H>(grad, begin + i)), y = vector.load(result + begin + i);
      if constexpr (H::kLog)
        added.add(slot, hn::IfThenZeroElse(hn::Eq(y, masked(typename decltype(vector)::D())), g));
      else
        added.add_product(slot, g, y);
    });
    sum += added.total();
  }
  return sum;
}

// A row whose first n elements take part; the others are masked.
template <class T>
struct BackwardRow {
  const T* grad;
  const T* result;
  T* out;
  int64_t n;
};

// The work for the next row that is done before a row is written. kSum takes the next row's sum, so
// that short rows do not wait for theirs. kAsk prefetches the next row, where two rows fit into the
// first-level cache together.
enum class Next { kSum, kAsk, kNothing };

// kScale: the scale may differ from 1. kSpread: a row's gradient is one element.
template <bool Log, Next Before, bool Scale, bool Broadcast = false>
struct How {
  static constexpr bool kLog = Log, kScale = Scale, kBroadcast = Broadcast;
  static constexpr Next kNext = Before;
};

// Writes elements begin … end - 1. `sum` is the row's sum. The next row lies to_grad and to_result
// elements behind this one.
template <class H, class T, class C>
HWY_INLINE void write_part(BackwardRow<T> row, int64_t begin, int64_t end, C sum, C scale,
                           int64_t to_grad, int64_t to_result) {
  const T *const grad = at<H>(row.grad, begin), *const result = row.result + begin;
  T* const out = row.out + begin;
  simd::for_row<C>(end - begin, [=](auto vector, auto slot, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    if constexpr (H::kNext == Next::kAsk) {
      simd::prefetch<C>(slot, grad + to_grad + i);
      simd::prefetch<C>(slot, result + to_result + i);
    }
    const auto g = vector.load(at<H>(grad, i)), y = vector.load(result + i);
    auto slope = g;
    if constexpr (H::kLog) {
      const auto share = hn::Mul(simd::exp_times(d, y), hn::Set(d, sum));
      slope = hn::IfThenZeroElse(hn::Eq(y, masked(d)), hn::Sub(g, share));
    } else {
      slope =
          hn::MulSub(y, g, hn::Mul(y, hn::Set(d, sum)));  // rounds less often than y * (g - sum)
    }
    if constexpr (H::kScale) slope = hn::Mul(slope, hn::Set(d, scale));
    vector.store(slope, out + i);
  });
}

template <class H, class T>
void backward_rows(const BackwardJob& job, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const BackwardParams& p = job.params;
  const int64_t length = p.length, queries = p.causal ? p.queries : 0;
  const C scale = static_cast<C>(job.scale);
  simd::RowCursor<decltype(p.rows), 3> cursor(p.rows, begin);
  // Copies of this row's gradient and of the next row's.
  [[maybe_unused]] T copies[2][H::kBroadcast ? kCopies : 1];
  const auto take = [&](int64_t r) HWY_ATTR {
    const int64_t visible = queries > 0 ? r % queries + 1 + length - queries : length;
    const T* grad = static_cast<const T*>(p.grad) + cursor.offset(0);
    if constexpr (H::kBroadcast) {
      std::fill_n(copies[r % 2], kCopies, *grad);
      grad = copies[r % 2];
    }
    return BackwardRow<T>{grad, static_cast<const T*>(p.result) + cursor.offset(1),
                          static_cast<T*>(p.out) + cursor.offset(2), visible < 0 ? 0 : visible};
  };
  const auto sum_of = [](BackwardRow<T> row) HWY_ATTR {
    const double sum = sum_of_row<C, H>(row.grad, row.result, row.n);
    return H::kLog ? sum / static_cast<double>(simd::kExpFactor<C>) : sum;
  };
  BackwardRow<T> row = take(begin);
  double sum = sum_of(row);
  for (int64_t r = begin; r < end; ++r) {
    const bool last = r + 1 == end;
    if (!last) cursor.next();
    const BackwardRow<T> next = take(last ? r : r + 1);
    const C of = static_cast<C>(sum);
    if constexpr (H::kNext == Next::kSum) {
      if (!last) sum = sum_of(next);
    }
    if constexpr (H::kNext == Next::kNothing) {
      // Begins with the last elements: they were read last, and may be the only ones still in a
      // cache.
      constexpr int64_t kPart = simd::kRowBlock<C> / 4;
      for (int64_t to = row.n; to > 0;) {
        const int64_t from = (to - 1) / kPart * kPart;
        write_part<H>(row, from, to, of, scale, 0, 0);
        to = from;
      }
    } else {
      write_part<H>(row, 0, row.n, of, scale, next.grad - row.grad, next.result - row.result);
    }
    T* const out = row.out + row.n;
    simd::for_row<C, 1>(length - row.n, [=](auto vector, auto, int64_t i) HWY_ATTR {
      vector.store(hn::Zero(typename decltype(vector)::D()), out + i);
    });
    row = next;
    if constexpr (H::kNext != Next::kSum) {
      if (!last) sum = sum_of(row);
    }
  }
}

template <bool Log, Next Before, class T>
void backward_by(const BackwardJob& job, int64_t begin, int64_t end) {
  job.scale == 1 ? backward_rows<How<Log, Before, false>, T>(job, begin, end)
                 : backward_rows<How<Log, Before, true>, T>(job, begin, end);
}

template <bool Log, class T>
void backward_of(const BackwardJob& job, int64_t begin, int64_t end) {
  if (job.params.is_broadcast)
    return backward_rows<How<Log, Next::kNothing, true, true>, T>(job, begin, end);
  const int64_t bytes = job.params.length * static_cast<int64_t>(sizeof(T));
  if (bytes < (sizeof(T) == 2 ? 2048 : 1024))
    return backward_by<Log, Next::kSum, T>(job, begin, end);
  // Prefetching rows that are in memory, and not in a cache, made a pass a fifth slower (Zen 5).
  const bool in_cache = 3 * bytes * job.params.rows.count <= (INT64_C(8) << 20);
  if (bytes <= 4096 && in_cache) return backward_by<Log, Next::kAsk, T>(job, begin, end);
  backward_by<Log, Next::kNothing, T>(job, begin, end);
}

void run_backward(const BackwardJob& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    job.params.log ? backward_of<true, T>(job, begin, end) : backward_of<false, T>(job, begin, end);
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace softmax
