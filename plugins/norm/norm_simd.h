// Moments of rows on the CPU, for one instruction set level. Included after opdock/simd.hpp by
// files that are compiled for each level.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/simd_row.hpp"

namespace layernorm {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// A row's mean and variance. In float, a mean much larger than the deviation would lack digits that
// matter, so Scale holds it in two parts.
struct RowMoments {
  double mean;
  double variance;  // population variance, divided by n; for rms norm, the mean of the squares
};

// Combines the moments of blocks of numbers by the formula of Chan, Golub and LeVeque.
class Blocks {
 public:
  void add(double count, double mean, double squares) {  // squares: about the block's mean
    const double all = count_ + count, away = mean - mean_;
    mean_ += away * (count / all);
    squares_ += squares + away * away * (count_ * count / all);
    count_ = all;
  }
  RowMoments moments() const { return {mean_, squares_ / count_}; }

 private:
  double count_ = 0, mean_ = 0, squares_ = 0;
};

// The elements of a row. If there is a residual, it and perhaps a second tensor are added first;
// what is normalised is the sum as it is stored, rounded.
template <class T>
struct Source {
  const T* x;
  const T* residual;  // or null
  const T* more;      // also added if there is a residual; or null
  T* sum;             // or null

  const T* result() const { return residual ? sum : x; }

  // Returns the elements from i on, and stores the sum. It may be called only once per element, as
  // the sum may replace x or residual.
  template <class Vector>
  HWY_INLINE typename Vector::V take(Vector vector, int64_t i) const {
    const auto value = vector.load(x + i);
    if (!residual) return value;
    auto all = hn::Add(value, vector.load(residual + i));
    if (more) all = hn::Add(all, vector.load(more + i));
    vector.store(all, sum + i);
    return vector.load(sum + i);
  }
};

template <class T>
RowMoments mean_square(const Source<T>& source, int64_t n) {
  using C = typename simd::Compute<T>::type;
  double squares = 0;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    simd::RowSum<C> sum;
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i)
                                HWY_ATTR { sum.add_square(slot, source.take(vector, begin + i)); });
    squares += sum.total();
  }
  return {0, squares / static_cast<double>(n)};
}

// For each block, takes deviations from about where its mean is, then adds what the mean lacks and
// takes the squares about it. Rows whose mean is large compared with their deviation keep their
// digits.
template <class T>
RowMoments mean_and_variance(const Source<T>& source, int64_t n) {
  using C = typename simd::Compute<T>::type;
  Blocks blocks;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    const double of = static_cast<double>(count);
    simd::RowSum<C> sum, deviations, squares;
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i)
                                HWY_ATTR { sum.add(slot, source.take(vector, begin + i)); });
    const C rough = static_cast<C>(sum.total() / of);
    const T* const x = source.result() + begin;
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
      const auto away = hn::Sub(vector.load(x + i), hn::Set(typename decltype(vector)::D(), rough));
      const auto deviation = vector.or_else(away, 0);
      deviations.add(slot, deviation);
      squares.add_square(slot, deviation);
    });
    const double rest = deviations.total() / of;
    const double about_mean = squares.total() - rest * rest * of;
    blocks.add(of, static_cast<double>(rough) + rest, about_mean < 0 ? 0 : about_mean);
  }
  return blocks.moments();
}

template <class T>
RowMoments row_moments(const Source<T>& source, int64_t n, bool centred) {
  return centred ? mean_and_variance(source, n) : mean_square(source, n);
}

// Computes (x - mean) * factor, with the mean in two parts.
template <class C>
struct Scale {
  C mean, factor, rest;

  Scale(const RowMoments& of, double eps)
      : mean(static_cast<C>(of.mean)),
        factor(static_cast<C>(1 / __builtin_sqrt(of.variance + eps))),
        rest(static_cast<C>((of.mean - static_cast<double>(mean)) * static_cast<double>(factor))) {}

  template <class D>
  HWY_INLINE hn::VFromD<D> normalise(D d, hn::VFromD<D> x) const {
    const auto deviation = hn::Sub(x, hn::Set(d, mean));
    return hn::MulSub(deviation, hn::Set(d, factor), hn::Set(d, rest));
  }
};

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace layernorm
