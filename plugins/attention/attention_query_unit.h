// Some rows of attention whose gradients are computed on the CPU, their scores and their weights:
// shared by the kernels for q and for what is added to the scores, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/simd.hpp"
//
#include "attention_simd.h"

namespace attention {
namespace OPDOCK_SIMD_LEVEL {

// Returns a number of a row; there must be such a tensor.
template <class C>
C row_number(const RowNumbers& of, int64_t batch, int64_t head, int64_t query) {
  const int64_t at = of.at(batch, head, query);
  return of.wide ? static_cast<C>(static_cast<const double*>(of.data)[at])
                 : static_cast<C>(static_cast<const float*>(of.data)[at]);
}

template <class C>
HWY_INLINE void clear_head(C* head) {
  const simd::FullTag<C> d;
  for (int i = 0; i < kMaxSize; i += static_cast<int>(hn::Lanes(d)))
    hn::StoreU(hn::Zero(d), d, head + i);
}

template <class C>
void load_any(opdock_dtype dtype, const void* data, int64_t at, int size, C* to, int64_t step = 1) {
  with_element<C>(dtype, [&](auto zero) HWY_ATTR {
    load_head<decltype(zero)>(data, at, size, kSame, C{1}, to, step);
  });
}

template <class C>
void store_any(opdock_dtype dtype, const C* from, C factor, int size, void* data, int64_t at,
               int64_t step = 1) {
  with_element<C>(dtype, [&](auto zero) HWY_ATTR {
    store_head(from, factor, size, static_cast<decltype(zero)*>(data) + at, step);
  });
}

// Some rows of a batch and head of keys, and kKeys of the keys at a time.
template <class C>
struct QueryUnit : SharedRows<AnyElement<C>> {
  using Rows = SharedRows<AnyElement<C>>;
  using Rows::p, Rows::dtype, Rows::batch, Rows::head, Rows::length, Rows::scale;
  const BackwardParams& b;
  int64_t first_row;
  int rows;

  alignas(64) C keys[kKeys][kMaxSize];
  alignas(64) C values[kKeys][kMaxSize];
  alignas(64) C q[kUnitRows][kMaxSize];
  alignas(64) C grad[kUnitRows][kMaxSize];
  alignas(64) C sums[kUnitRows][kMaxSize];
  C reduce[kUnitRows], delta[kUnitRows];

  QueryUnit(const BackwardJob& job, int64_t of_batch)
      : Rows(job.params.p, job.dtype, job.scale, of_batch), b(job.params) {}

  template <class Body>
  void for_keys(bool with_values, const Body& body) {
    const int64_t first = p.first(this->position(first_row)),
                  end = p.end(length, this->position(first_row + rows - 1));
    for (int64_t key = first; key < end; key += kKeys) {
      const int count = static_cast<int>(end - key < kKeys ? end - key : kKeys);
      for (int i = 0; i < count; ++i) {
        load_any(dtype, p.k.data, p.k.at(batch, key + i, head), p.size, keys[i], p.key_element);
        if (with_values) load_any(dtype, p.v.data, p.v.at(batch, key + i, head), p.size, values[i]);
      }
      for (int r = 0; r < rows; ++r) body(r, key, count);
    }
  }

  // Computes the scores of a row with keys first … first + count - 1; -infinity where it sees none.
  // Returns the largest of them and `most`.
  C make_scores(int r, int64_t first, int count, C most, C (&score)[kKeys]) const {
    const int at = this->position(first_row + r);
    const int64_t see_first = p.first(at), see_end = p.end(length, at);
    for (int i = 0; i < kKeys; ++i) {
      const int64_t key = first + i;
      score[i] = kNegativeInfinity<C>;
      if (i >= count || key < see_first || key >= see_end) continue;
      score[i] = this->score(first_row + r, key, dot(q[r], keys[i], p.size));
      most = score[i] > most ? score[i] : most;
    }
    return most;
  }

  void begin() {
    for (int r = 0; r < rows; ++r) {
      const int64_t query = this->query(first_row + r), of = this->head_of(first_row + r);
      load_any(dtype, p.q.data, p.q.at(batch, query, of), p.size, q[r]);
      load_any(dtype, b.result.data, b.result.at(batch, query, of), p.size, sums[r]);
      load_any(dtype, b.grad.data, b.grad.at(batch, query, of), p.size, grad[r], b.grad_element);
      delta[r] = dot(grad[r], sums[r], p.size);
      if (b.grad_lse.data) delta[r] -= row_number<C>(b.grad_lse, batch, of, query);
      if (b.lse.data) reduce[r] = row_number<C>(b.lse, batch, of, query);
      clear_head(sums[r]);
    }
    if (!b.lse.data) add_exponentials();
    double* const numbers = static_cast<double*>(b.rows);
    for (int r = 0; r < rows; ++r) {
      const int64_t at = b.row_at(batch, this->head_of(first_row + r), this->query(first_row + r));
      if (reduce[r] == kNegativeInfinity<C>) reduce[r] = -kNegativeInfinity<C>;
      numbers[at] = static_cast<double>(reduce[r]);
      numbers[at + 1] = static_cast<double>(delta[r]);
    }
  }

  // Computes the logarithms of the sums of the rows' exponentials.
  void add_exponentials() {
    C most[kUnitRows];
    double sum[kUnitRows] = {};
    for (int r = 0; r < rows; ++r) most[r] = kNegativeInfinity<C>;
    for_keys(false, [&](int r, int64_t first, int count) HWY_ATTR {
      alignas(64) C score[kKeys];
      const C now = make_scores(r, first, count, most[r], score);
      if (now > most[r])
        sum[r] *= __builtin_exp(static_cast<double>(most[r]) - static_cast<double>(now));
      most[r] = now;
      make_weights(score, now == kNegativeInfinity<C> ? C{0} : now);
      for (int k = 0; k < count; ++k) sum[r] += static_cast<double>(score[k]);
    });
    for (int r = 0; r < rows; ++r)
      reduce[r] = static_cast<C>(
          sum[r] == 0 ? -HUGE_VAL : static_cast<double>(most[r]) + __builtin_log(sum[r]));
  }

  // Calls body(row, place, key, gradient of the score without the factor `scale`) for what the rows
  // see; `place` is the key's in `keys`.
  template <class Body>
  void for_slopes(const Body& body) {
    for_keys(true, [&](int r, int64_t first, int count) HWY_ATTR {
      alignas(64) C weight[kKeys];
      make_scores(r, first, count, 0, weight);
      make_weights(weight, reduce[r]);
      for (int k = 0; k < count; ++k) {
        if (weight[k] == 0) continue;  // an unseen key adds nothing, even if it is NaN
        const C factor = this->keep_factor(first_row + r, first + k);
        const C product = factor == 0 ? 0 : factor * dot(grad[r], values[k], p.size);
        body(r, k, first + k, weight[k] * (product - delta[r]));
      }
    });
  }

  void add_keys() {
    for_slopes([&](int r, int k, int64_t, C slope)
                   HWY_ATTR { add_head(slope, keys[k], p.size, sums[r]); });
  }

  void finish() {
    for (int r = 0; r < rows; ++r) {
      const int64_t at =
          b.grad_q.at(batch, this->query(first_row + r), this->head_of(first_row + r));
      store_any(dtype, sums[r], scale, p.size, b.grad_q.data, at);
    }
  }
};

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace attention
