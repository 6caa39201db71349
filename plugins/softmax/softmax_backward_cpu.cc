// The gradients of softmax and log_softmax of rows begin … end-1 on the CPU, for one instruction
// set level.
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

// What log_softmax gives for what is masked.
template <class D>
HWY_INLINE hn::VFromD<D> masked(D d) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(-HUGE_VAL));
}

// Of grad * result, or for the logarithm, of grad; over the n elements of a row.
template <class C, bool IsLog, class T>
double sum_of(const T* grad, const T* result, int64_t n) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    simd::RowSum<C> added;
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
      const auto g = vector.load(grad + begin + i), y = vector.load(result + begin + i);
      if constexpr (IsLog)
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
  double sum;
};

template <class T, bool IsLog>
void write_row(const BackwardRow<T>& given, int64_t length, double scale_by) {
  const BackwardRow<T> row = given;  // that no store can be seen to change
  using C = typename simd::Compute<T>::type;
  const C scale = static_cast<C>(scale_by);
  if constexpr (IsLog) {
    const C factor = static_cast<C>(row.sum / static_cast<double>(simd::kExpFactor<C>));
    simd::for_row<C>(row.n, [&](auto vector, auto, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      const auto y = vector.load(row.result + i);
      const auto share = hn::Mul(simd::exp_times(d, y), hn::Set(d, factor));
      const auto slope = hn::Sub(vector.load(row.grad + i), share);
      const auto found = hn::IfThenZeroElse(hn::Eq(y, masked(d)), slope);
      vector.store(hn::Mul(found, hn::Set(d, scale)), row.out + i);
    });
  } else {
    const C all = static_cast<C>(row.sum);
    simd::for_row<C>(row.n, [&](auto vector, auto, int64_t i) HWY_ATTR {
      const typename decltype(vector)::D d;
      const auto y = vector.load(row.result + i);
      // Rounds less than y * (grad - all).
      const auto slope = hn::MulSub(y, vector.load(row.grad + i), hn::Mul(y, hn::Set(d, all)));
      vector.store(hn::Mul(slope, hn::Set(d, scale)), row.out + i);
    });
  }
  simd::for_row<C>(length - row.n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    vector.store(hn::Zero(typename decltype(vector)::D()), row.out + row.n + i);
  });
}

template <class T, bool IsLog>
void backward_rows(const BackwardJob& job, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const BackwardParams& p = job.params;
  simd::RowCursor<decltype(p.rows), 3> cursor(p.rows, begin);
  const auto sum = [&](int64_t r) {
    int64_t n = p.length;
    if (p.causal) {
      n = r % p.queries + 1 + p.length - p.queries;
      n = n < 0 ? 0 : n;
    }
    const T* const grad = static_cast<const T*>(p.grad) + cursor.offset(0);
    const T* const result = static_cast<const T*>(p.result) + cursor.offset(1);
    T* const out = static_cast<T*>(p.out) + cursor.offset(2);
    cursor.next();
    return BackwardRow<T>{grad, result, out, n, sum_of<C, IsLog>(grad, result, n)};
  };
  // A short row's sum is taken before the row before is written: none waits for it. Of longer ones
  // two would not stay in the first cache.
  const bool ahead = p.length * static_cast<int64_t>(sizeof(T)) < 2048;
  BackwardRow<T> row = sum(begin), next = row;
  for (int64_t r = begin; r < end; ++r) {
    if (ahead && r + 1 < end) next = sum(r + 1);
    write_row<T, IsLog>(row, p.length, job.scale);
    if (!ahead && r + 1 < end) next = sum(r + 1);
    row = next;
  }
}

void run_backward(const BackwardJob& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    job.params.log ? backward_rows<T, true>(job, begin, end)
                   : backward_rows<T, false>(job, begin, end);
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace softmax
