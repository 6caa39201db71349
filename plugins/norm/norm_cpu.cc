// Layer normalisation of rows begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "norm_cpu.h"

namespace layernorm {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

template <class C>
struct Moments {
  C mean;
  C variance;  // of the population: divided by n
};

// Two passes. The second corrects what rounding has left in the first one's mean, so that rows
// whose mean is large against their deviation keep their digits.
template <class T, class C>
Moments<C> moments(const T* x, int64_t n) {
  simd::Sum<C> sum;
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR { sum.add(simd::load(d, x + i)); });
  const C count = static_cast<C>(n);
  const C rough = sum.total() / count;
  simd::Sum<C> deviations, squares;
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto deviation = hn::Sub(simd::load(d, x + i), hn::Set(d, rough));
    deviations.add(deviation);
    squares.add(hn::Mul(deviation, deviation));
  });
  const C rest = deviations.total() / count;
  const C variance = squares.total() / count - rest * rest;
  return {rough + rest, variance < 0 ? C{0} : variance};
}

template <class T>
void row(const T* x, const T* weight, const T* bias, T* out, int64_t n, double eps) {
  using C = typename simd::Compute<T>::type;
  const Moments<C> of = moments<T, C>(x, n);
  const simd::OneTag<C> one;
  const C factor = C{1} / hn::GetLane(hn::Sqrt(hn::Set(one, of.variance + static_cast<C>(eps))));
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    auto y = hn::Mul(hn::Sub(simd::load(d, x + i), hn::Set(d, of.mean)), hn::Set(d, factor));
    if (weight) y = hn::Mul(y, simd::load(d, weight + i));
    if (bias) y = hn::Add(y, simd::load(d, bias + i));
    simd::store(d, y, out + i);
  });
}

template <class T>
void add(const T* x, const T* residual, T* sum, int64_t n) {
  using C = typename simd::Compute<T>::type;
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    simd::store(d, hn::Add(simd::load(d, x + i), simd::load(d, residual + i)), sum + i);
  });
}

template <class T>
void rows(const Job& job, int64_t begin, int64_t end) {
  const Params& p = job.params;
  for (int64_t r = begin; r < end; ++r) {
    long long offset[4];
    p.rows.locate(r, offset);
    const T* x = static_cast<const T*>(p.x) + offset[0];
    if (p.residual) {
      // What is normalised is the sum as it is stored, rounded.
      T* sum = static_cast<T*>(p.sum) + offset[3];
      add(x, static_cast<const T*>(p.residual) + offset[1], sum, p.length);
      x = sum;
    }
    row(x, static_cast<const T*>(p.weight), static_cast<const T*>(p.bias),
        static_cast<T*>(p.out) + offset[2], p.length, job.eps);
  }
}

void run(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { rows<decltype(zero)>(job, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace layernorm
