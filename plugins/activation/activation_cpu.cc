// The gradients of the activations on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "activation_cpu.h"
#include "activation_simd.h"
#include "opdock/simd_columns.hpp"
#include "opdock/simd_elements.hpp"

namespace activation {
namespace OPDOCK_SIMD_LEVEL {

template <class T>
using Compute = typename simd::Compute<T>::type;

// A variant that a kernel is compiled for: the activation, and which tensors are present. A loop
// that had to test for each tensor would take longer than the simple ops themselves.
template <int A, bool Biased, bool Gated>
struct Form {
  static constexpr int kAct = A;
  static constexpr bool kBiased = Biased, kGated = Gated;
};

// Calls body(form, T{}) with the Form of an op and the T of its elements. Kernels exist only for
// the forms that ops have.
template <class Body>
void dispatch(int act, bool biased, bool gated, opdock_dtype dtype, const Body& body) {
  simd::dispatch(dtype, [&](auto zero) {
    if (act == kSilu && !gated) return body(Form<kSilu, false, false>(), zero);
    if (act == kRelu) return body(Form<kRelu, true, false>(), zero);
    if (act == kIdentity) return body(Form<kIdentity, true, false>(), zero);
    const auto any = [&](auto found) {
      constexpr int kAct = decltype(found)::kAct;
      if (biased) return gated ? body(found, zero) : body(Form<kAct, true, false>(), zero);
      body(Form<kAct, false, true>(), zero);
    };
    if (act == kSilu) return any(Form<kSilu, true, true>());
    act == kGeluTanh ? any(Form<kGeluTanh, true, true>()) : any(Form<kGeluErf, true, true>());
  });
}

template <class T, int N>
using Row = simd::ElementRow<T, N>;

template <bool Biased, class Vector, class T>
HWY_INLINE typename Vector::V load_sum(Vector vector, const T* x, const T* bias, int64_t i) {
  const auto value = vector.load(x + i);
  if constexpr (!Biased) return value;
  return hn::Add(value, vector.load(bias + i));
}

template <class Vector, class C>
HWY_INLINE void add_to(Vector vector, typename Vector::V value, C* sum) {
  vector.store(hn::Add(vector.load(sum), value), sum);
}

// sum, up_sum: the biases' gradients are added to these, if there are biases.
template <class F, class T>
HWY_INLINE void backward_row(const Row<T, kBackwardTensors>& row, int64_t n, Compute<T>* sum,
                             Compute<T>* up_sum) {
  constexpr bool kHasX = F::kAct != kIdentity;
  T *const grad_x = row[kGradX], *const grad_up = F::kGated ? row[kGradUp] : nullptr;
  const T *const from = row[kGrad], *const x = kHasX ? row[kOfX] : nullptr,
                 *const x_bias = kHasX && F::kBiased ? row[kOfXBias] : nullptr,
                 *const up = F::kGated ? row[kOfUp] : nullptr,
                 *const up_bias = F::kGated && F::kBiased ? row[kOfUpBias] : nullptr;
  simd::for_row<Compute<T>, 1>(n, [=](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    const auto grad = vector.load(from + i);
    auto inner = grad, value = grad, of = grad;
    if constexpr (kHasX) of = load_sum<F::kBiased>(vector, x, x_bias, i);
    if constexpr (F::kGated) inner = hn::Mul(grad, load_sum<F::kBiased>(vector, up, up_bias, i));
    const auto slope = differentiate<T, F::kAct>(d, of, inner, &value);
    vector.store(slope, grad_x + i);
    if constexpr (F::kBiased) add_to(vector, slope, sum + i);
    if constexpr (F::kGated) {
      const auto up_slope = hn::Mul(grad, value);
      vector.store(up_slope, grad_up + i);
      if constexpr (F::kBiased) add_to(vector, up_slope, up_sum + i);
    }
  });
}

void backward(const BackwardJob& job, int64_t begin, int64_t end) {
  const BackwardParams& p = job.params;
  dispatch(p.act, false, p.gated, job.dtype, [&](auto form, auto zero) {
    using T = decltype(zero);
    if constexpr (!decltype(form)::kBiased) {
      simd::for_each_piece<T>(p.at, job.pieces, begin, end,
                              [](const auto& row, int64_t n) HWY_ATTR {
                                backward_row<decltype(form), T>(row, n, nullptr, nullptr);
                              });
    }
  });
}

// Handles columns begin … end - 1 of the rows of one chunk.
template <class F, class T>
void backward_chunk(const BackwardParams& p, int64_t chunk, int64_t begin, int64_t end) {
  using C = Compute<T>;
  C* sum[2] = {};
  for (int o = 0; o < 2; ++o) {
    if (!p.sums.partial[o]) continue;
    sum[o] = static_cast<C*>(p.sums.partial[o]) + chunk * p.sums.columns + begin;
    for (int64_t i = 0; i < end - begin; ++i) sum[o][i] = 0;
  }
  const int64_t next = (chunk + 1) * p.sums.chunks.rows;
  const int64_t rows = next < p.at.rows.count ? next : p.at.rows.count;
  int64_t r = chunk * p.sums.chunks.rows;
  simd::RowCursor<decltype(p.at.rows), kBackwardTensors> cursor(p.at.rows, r);
  for (; r < rows; ++r, cursor.next())
    backward_row<F, T>({p.at, cursor, begin}, end - begin, sum[0], sum[1]);
}

void backward_sums(const BackwardJob& job, int64_t first, int64_t last) {
  const BackwardParams& p = job.params;
  const opdock::Pieces& pieces = job.pieces;
  dispatch(p.act, true, p.gated, job.dtype, [&](auto form, auto zero) {
    using F = decltype(form);
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t begin = piece % pieces.per_row * pieces.size;
      const int64_t end = begin + pieces.size < p.at.length ? begin + pieces.size : p.at.length;
      if constexpr (F::kBiased)
        backward_chunk<F, decltype(zero)>(p, piece / pieces.per_row, begin, end);
    }
  });
}

void column_totals(const BackwardJob& job, int64_t begin, int64_t end) {
  const auto& sums = job.params.sums;
  simd::dispatch(job.dtype, [&](auto zero) {
    simd::column_totals(job.partial, sums.chunks.count, sums.columns,
                        static_cast<decltype(zero)*>(job.totals), begin, end);
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace activation
