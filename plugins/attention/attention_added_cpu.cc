// The gradient of a tensor that is added to attention's scores, on the CPU, for one instruction set
// level. An element is added up by one thread, always in the same order.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "attention_query_unit.h"

namespace attention {
namespace OPDOCK_SIMD_LEVEL {

// Calls body(first, count) for the rows of a head of keys whose scores belong to row `query` of
// head `head` of the result, at most kUnitRows at a time: rows that follow each other where heads
// that share keys are summed, or where each head has its own.
template <class Body>
void for_rows(const AddedParams& a, int64_t head, int64_t query, const Body& body) {
  const Params& p = a.b.p;
  const int64_t all = int64_t{p.queries} * p.group;
  int64_t begin = query * p.group + head % p.group, end = begin + 1, step = 1;
  if (a.sums[1]) begin = query * p.group, end = begin + p.group;
  if (a.sums[2]) end = all;
  if (a.sums[2] && !a.sums[1] && p.group > 1) step = p.group;
  const int64_t most = step == 1 ? kUnitRows : 1;
  for (int64_t row = begin; row < end; row += step == 1 ? most : step)
    body(row, static_cast<int>(end - row < most ? end - row : most));
}

template <class C>
void added_units_of(const BackwardJob& job, const AddedParams& a, double* sums, int64_t begin,
                    int64_t end) {
  const Params& p = a.b.p;
  const int64_t queries = a.count(2, p.queries), heads = a.count(1, p.heads);
  const int64_t kv_heads = p.heads / p.group;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t query = unit % queries, head = unit / queries % heads,
                  batch = unit / queries / heads;
    for (int64_t key = 0; key < p.keys; ++key) sums[key] = 0;
    for (int64_t b = batch; b < (a.sums[0] ? a.batches : batch + 1); ++b) {
      const int64_t kv = head / p.group;
      for (int64_t h = kv; h < (a.sums[1] ? kv_heads : kv + 1); ++h) {
        QueryUnit<C> of(job, b * kv_heads + h);
        for_rows(a, head, query, [&](int64_t first, int count) HWY_ATTR {
          of.first_row = first;
          of.rows = count;
          of.begin();
          of.for_slopes([&](int, int, int64_t key, C slope)
                            HWY_ATTR { sums[key] += static_cast<double>(slope); });
        });
      }
    }
    const int64_t at = batch * a.strides[0] + head * a.strides[1] + query * a.strides[2];
    double total = 0;
    for (int64_t key = 0; key < p.keys; ++key) total += sums[key];
    for (int64_t key = 0; key < a.count(3, p.keys); ++key) {
      alignas(64) C sum[64 / sizeof(C)] = {static_cast<C>(a.sums[3] ? total : sums[key])};
      if (a.wide)
        static_cast<float*>(a.out)[at + key * a.strides[3]] = static_cast<float>(sum[0]);
      else
        store_any(job.dtype, sum, C{1}, 1, a.out, at + key * a.strides[3]);
    }
  }
}

void added_units(const BackwardJob& job, const AddedParams& a, double* sums, int64_t begin,
                 int64_t end) {
  job.dtype.bits == 64 ? added_units_of<double>(job, a, sums, begin, end)
                       : added_units_of<float>(job, a, sums, begin, end);
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace attention
