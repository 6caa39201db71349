// Layer and rms normalisation of rows begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "norm_cpu.h"
#include "opdock/simd_row.hpp"

namespace layernorm {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// What a row is normalised by. In float the mean of far more than the deviation has lost digits
// that count: it is in two parts.
struct Moments {
  double mean;
  double variance;  // of the population: divided by n; of rms norm the mean of the squares
};

// Adds blocks of numbers up to the moments of all, by the formula of Chan, Golub and LeVeque.
class Blocks {
 public:
  void add(double count, double mean, double squares) {  // about the block's mean
    const double all = count_ + count, away = mean - mean_;
    mean_ += away * (count / all);
    squares_ += squares + away * away * (count_ * count / all);
    count_ = all;
  }
  Moments moments() const { return {mean_, squares_ / count_}; }

 private:
  double count_ = 0, mean_ = 0, squares_ = 0;
};

// Elements of a row, which are first added to those of another row, if there is one: what counts is
// the sum as it is stored, rounded.
template <class T>
struct Source {
  const T* x;
  const T* residual;  // or null
  T* sum;             // or null

  const T* result() const { return residual ? sum : x; }

  // Those from i on. Stores the sum, which may be x or residual, so it is taken once.
  template <class Vector>
  HWY_INLINE typename Vector::V take(Vector vector, int64_t i) const {
    const auto value = vector.load(x + i);
    if (!residual) return value;
    vector.store(hn::Add(value, vector.load(residual + i)), sum + i);
    return vector.load(sum + i);
  }
};

template <class T>
Moments mean_square(const Source<T>& source, int64_t n) {
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

// Of each block first about where its mean is, then what is missing to it, and the squares about
// it: rows whose mean is large against their deviation keep their digits.
template <class T>
Moments mean_and_variance(const Source<T>& source, int64_t n) {
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

// (x - mean) * factor * weight + bias.
template <class T>
void write(const T* x, const T* weight, const T* bias, T* out, int64_t n, const Moments& of,
           double eps) {
  using C = typename simd::Compute<T>::type;
  const C factor = static_cast<C>(1 / __builtin_sqrt(of.variance + eps));
  const C mean = static_cast<C>(of.mean);
  const C rest =
      static_cast<C>((of.mean - static_cast<double>(mean)) * static_cast<double>(factor));
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    const auto deviation = hn::Sub(vector.load(x + i), hn::Set(d, mean));
    auto y = hn::MulSub(deviation, hn::Set(d, factor), hn::Set(d, rest));
    if (weight) y = hn::Mul(y, vector.load(weight + i));
    if (bias) y = hn::Add(y, vector.load(bias + i));
    vector.store(y, out + i);
  });
}

template <class T>
void rows(const Job& job, int64_t begin, int64_t end) {
  const Params& p = job.params;
  for (int64_t r = begin; r < end; ++r) {
    long long offset[4];
    p.rows.locate(r, offset);
    const T* residual = static_cast<const T*>(p.residual);
    T* sum = static_cast<T*>(p.sum);
    const Source<T> source = {static_cast<const T*>(p.x) + offset[0],
                              residual ? residual + offset[1] : nullptr,
                              sum ? sum + offset[3] : nullptr};
    const Moments of =
        p.centred ? mean_and_variance(source, p.length) : mean_square(source, p.length);
    write(source.result(), static_cast<const T*>(p.weight), static_cast<const T*>(p.bias),
          static_cast<T*>(p.out) + offset[2], p.length, of, job.eps);
  }
}

void run(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { rows<decltype(zero)>(job, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace layernorm
