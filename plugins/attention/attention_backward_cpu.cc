// The gradients of attention on the CPU, for one instruction set level. Weights are computed again
// from the logarithms of their sums. One pass goes through the keys for a few rows, and gives the
// gradient of q; the other goes through the rows for a few keys, and gives those of k and v. So
// each element is added up by one thread, always in the same order.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "attention_query_unit.h"

namespace attention {
namespace OPDOCK_SIMD_LEVEL {

// Some keys of a batch and head, and kKeys of the rows at a time.
template <class C>
struct KeyUnit : SharedRows<AnyElement<C>> {
  using Rows = SharedRows<AnyElement<C>>;
  using Rows::p, Rows::dtype, Rows::batch, Rows::head, Rows::length, Rows::scale;
  const BackwardParams& b;

  alignas(64) C q[kKeys][kMaxSize];
  alignas(64) C grad[kKeys][kMaxSize];
  C reduce[kKeys], delta[kKeys];
  alignas(64) C keys[kUnitRows][kMaxSize];
  alignas(64) C values[kUnitRows][kMaxSize];
  alignas(64) C key_sums[kUnitRows][kMaxSize];
  alignas(64) C value_sums[kUnitRows][kMaxSize];

  KeyUnit(const BackwardJob& job, int64_t of_batch)
      : Rows(job.params.p, job.dtype, job.scale, of_batch), b(job.params) {}

  void begin(int64_t first_key, int count) {
    for (int k = 0; k < count; ++k) {
      clear_head(key_sums[k]);
      clear_head(value_sums[k]);
      if (first_key + k >= length) continue;  // it is not read
      load_any(dtype, p.k.data, p.k.at(batch, first_key + k, head), p.size, keys[k], p.key_element);
      load_any(dtype, p.v.data, p.v.at(batch, first_key + k, head), p.size, values[k]);
    }
  }

  // Adds rows first_row … first_row + rows - 1 to the gradients of key number k.
  void add_rows(int k, int64_t key, int64_t first_row, int rows) {
    alignas(64) C weight[kKeys];
    bool some = false;
    for (int r = 0; r < kKeys; ++r) {
      weight[r] = kNegativeInfinity<C>;
      const int at = r < rows ? this->position(first_row + r) : 0;
      if (r >= rows || key < p.first(at) || key >= p.end(length, at)) continue;
      weight[r] = this->score(first_row + r, key, dot(q[r], keys[k], p.size)) - reduce[r];
      some = true;
    }
    if (!some) return;
    make_weights(weight, C{0});
    for (int r = 0; r < rows; ++r) {
      if (weight[r] == 0) continue;
      const C factor = this->keep_factor(first_row + r, key);
      if (factor != 0) add_head(weight[r] * factor, grad[r], p.size, value_sums[k]);
      const C product = factor == 0 ? 0 : factor * dot(grad[r], values[k], p.size);
      const C slope = weight[r] * (product - delta[r]);
      add_head(slope, q[r], p.size, key_sums[k]);
    }
  }

  void add_all_rows(int64_t first_key, int count) {
    const int64_t all = int64_t{p.queries} * p.group;
    const double* const numbers = static_cast<const double*>(b.rows);
    const int64_t last_key = first_key + count - 1;
    for (int64_t row = 0; row < all; row += kKeys) {
      const int rows = static_cast<int>(all - row < kKeys ? all - row : kKeys);
      // The last row sees the most keys of the end, the first row those of the beginning.
      if (first_key >= p.end(length, this->position(row + rows - 1)) ||
          last_key < p.first(this->position(row)))
        continue;
      for (int r = 0; r < rows; ++r) {
        const int64_t query = this->query(row + r), of = this->head_of(row + r);
        load_any(dtype, p.q.data, p.q.at(batch, query, of), p.size, q[r]);
        load_any(dtype, b.grad.data, b.grad.at(batch, query, of), p.size, grad[r], b.grad_element);
        const int64_t at = b.row_at(batch, of, query);
        reduce[r] = static_cast<C>(numbers[at]);
        delta[r] = static_cast<C>(numbers[at + 1]);
      }
      for (int k = 0; k < count; ++k) add_rows(k, first_key + k, row, rows);
    }
  }

  void finish(int64_t first_key, int count) {
    for (int k = 0; k < count; ++k) {
      store_any(dtype, key_sums[k], scale, p.size, b.grad_k.data,
                b.grad_k.at(batch, first_key + k, head), b.grad_k_element);
      store_any(dtype, value_sums[k], C{1}, p.size, b.grad_v.data,
                b.grad_v.at(batch, first_key + k, head));
    }
  }
};

template <class C>
void backward_queries_of(const BackwardJob& job, int64_t begin, int64_t end) {
  const Params& p = job.params.p;
  const int64_t rows = int64_t{p.queries} * p.group;
  for (int64_t unit = begin; unit < end; ++unit) {
    QueryUnit<C> of(job, unit / job.row_units);
    of.first_row = unit % job.row_units * kUnitRows;
    of.rows = static_cast<int>(rows - of.first_row < kUnitRows ? rows - of.first_row : kUnitRows);
    of.begin();
    of.add_keys();
    of.finish();
  }
}

template <class C>
void backward_keys_of(const BackwardJob& job, int64_t begin, int64_t end) {
  const Params& p = job.params.p;
  for (int64_t unit = begin; unit < end; ++unit) {
    KeyUnit<C> of(job, unit / job.key_units);
    const int64_t first = unit % job.key_units * kUnitRows;
    const int count = static_cast<int>(p.keys - first < kUnitRows ? p.keys - first : kUnitRows);
    of.begin(first, count);
    of.add_all_rows(first, count);
    of.finish(first, count);
  }
}

void backward_queries(const BackwardJob& job, int64_t begin, int64_t end) {
  job.dtype.bits == 64 ? backward_queries_of<double>(job, begin, end)
                       : backward_queries_of<float>(job, begin, end);
}

void backward_keys(const BackwardJob& job, int64_t begin, int64_t end) {
  job.dtype.bits == 64 ? backward_keys_of<double>(job, begin, end)
                       : backward_keys_of<float>(job, begin, end);
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace attention
