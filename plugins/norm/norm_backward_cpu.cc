// The gradients of the norms on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "norm_cpu.h"
#include "norm_simd.h"
#include "opdock/simd_columns.hpp"

namespace layernorm {
namespace OPDOCK_SIMD_LEVEL {

// One row; absent arrays are null. C is the type in which T is computed.
template <class T, class C>
struct BackwardRow {
  const T* x;
  const T* grad;
  const T* grad_sum;
  const T* weight;
  T* out;
  C* weight_sums;  // grad times the normalised elements is added to these
  C* bias_sums;    // grad is added to these

  // Returns grad * weight.
  template <class Vector>
  HWY_INLINE typename Vector::V weighed(Vector vector, int64_t i) const {
    const auto slope = vector.load(grad + i);
    return weight ? hn::Mul(slope, vector.load(weight + i)) : slope;
  }
};

// A row's spread, and the means of g = grad * weight and of g times the deviations of x.
struct Means {
  RowMoments moments;
  double of_grad, of_product;
};

// Takes deviations from about where a block's mean is, then corrects for the difference.
template <class T, class C>
Means means(const BackwardRow<T, C>& row, int64_t n, bool centred) {
  Blocks blocks;
  double of_grad = 0, of_product = 0;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    const double of = static_cast<double>(count);
    C rough = 0;
    if (centred) {
      simd::RowSum<C> sum;
      simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i)
                                  HWY_ATTR { sum.add(slot, vector.load(row.x + begin + i)); });
      rough = static_cast<C>(sum.total() / of);
    }
    simd::RowSum<C> deviations, squares, grads, products;
    simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
      const auto x = vector.load(row.x + begin + i);
      const auto away = hn::Sub(x, hn::Set(typename decltype(vector)::D(), rough));
      const auto deviation = vector.or_else(away, 0);
      const auto g = row.weighed(vector, begin + i);  // g is 0 where there are no elements
      deviations.add(slot, deviation);
      squares.add_square(slot, deviation);
      grads.add(slot, g);
      products.add_product(slot, g, deviation);
    });
    const double at = static_cast<double>(rough), here = grads.total();
    of_grad += here;
    of_product += products.total() + at * here;
    const double rest = centred ? deviations.total() / of : 0;
    const double about_mean = squares.total() - rest * rest * of;
    blocks.add(of, at + rest, about_mean < 0 ? 0 : about_mean);
  }
  const RowMoments moments = blocks.moments();
  const double of = static_cast<double>(n);
  return {moments, of_grad / of, (of_product - moments.mean * of_grad) / of};
}

// Writes a row's gradient; norm_backward.cuh has the formula.
template <class T, class C>
void write_gradient(const BackwardRow<T, C>& row, int64_t n, const Scale<C>& scale, C mean,
                    C mean_of_product) {
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    const auto y = scale.normalise(d, vector.load(row.x + i));
    if (row.weight_sums) {
      const auto product =
          hn::MulAdd(vector.load(row.grad + i), y, vector.load(row.weight_sums + i));
      vector.store(product, row.weight_sums + i);
    }
    if (row.bias_sums) {
      const auto sum = hn::Add(vector.load(row.grad + i), vector.load(row.bias_sums + i));
      vector.store(sum, row.bias_sums + i);
    }
    const auto centred = hn::Sub(row.weighed(vector, i), hn::Set(d, mean));
    const auto slope = hn::NegMulAdd(y, hn::Set(d, mean_of_product), centred);
    auto found = hn::Mul(slope, hn::Set(d, scale.factor));
    if (row.grad_sum) found = hn::Add(found, vector.load(row.grad_sum + i));
    vector.store(found, row.out + i);
  });
}

// weight_sums, bias_sums: as in BackwardRow.
template <class T, class C>
void backward_rows(const BackwardJob& job, int64_t begin, int64_t end, C* weight_sums,
                   C* bias_sums) {
  const BackwardParams& p = job.params;
  simd::RowCursor<decltype(p.rows), 4> cursor(p.rows, begin);
  for (int64_t r = begin; r < end; ++r, cursor.next()) {
    const T* const grad_sum = static_cast<const T*>(p.grad_sum);
    const BackwardRow<T, C> row = {static_cast<const T*>(p.x) + cursor.offset(0),
                                   static_cast<const T*>(p.grad) + cursor.offset(1),
                                   grad_sum ? grad_sum + cursor.offset(3) : nullptr,
                                   static_cast<const T*>(p.weight),
                                   static_cast<T*>(p.out) + cursor.offset(2),
                                   weight_sums,
                                   bias_sums};
    const Means of = means(row, p.length, p.centred);
    const Scale<C> scale(of.moments, job.eps);
    const double factor = 1 / __builtin_sqrt(of.moments.variance + job.eps);
    write_gradient(row, p.length, scale, p.centred ? static_cast<C>(of.of_grad) : C{0},
                   static_cast<C>(of.of_product * factor));
  }
}

void run_backward(const BackwardJob& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename simd::Compute<T>::type;
    backward_rows<T, C>(job, begin, end, nullptr, nullptr);
  });
}

void run_backward_chunks(const BackwardJob& job, int64_t begin, int64_t end) {
  const opdock::ColumnSums<2>& sums = job.sums;
  const int64_t length = job.params.length, rows = job.params.rows.count;
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename simd::Compute<T>::type;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      C* of[2] = {};
      for (int s = 0; s < 2; ++s) {
        if (!sums.partial[s]) continue;
        of[s] = static_cast<C*>(sums.partial[s]) + chunk * sums.columns;
        for (int64_t i = 0; i < length; ++i) of[s][i] = 0;
      }
      const int64_t first = chunk * sums.chunks.rows, last = first + sums.chunks.rows;
      backward_rows<T, C>(job, first, last < rows ? last : rows, of[0], of[1]);
    }
  });
}

void column_totals(const ColumnJob& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) {
    simd::column_totals(job.partial, job.chunks, job.columns, static_cast<decltype(zero)*>(job.out),
                        begin, end);
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace layernorm
