// attention on the CPU, for one instruction set level. A few rows at a time go through the keys, 32
// of which are converted at a time, with running maxima and sums.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "attention_simd.h"

namespace attention {
namespace OPDOCK_SIMD_LEVEL {

template <class T>
struct Unit : SharedRows<T> {
  using Rows = SharedRows<T>;
  using Rows::p, Rows::batch, Rows::head, Rows::length;
  using typename Rows::C, typename Rows::D;
  int64_t first_row;
  int rows;
  Unit(const Job& job, int64_t of_batch) : Rows(job.params, job.dtype, job.scale, of_batch) {}

  alignas(64) C keys[kKeys][kMaxSize];
  alignas(64) C values[kKeys][kMaxSize];
  alignas(64) C q[kUnitRows][kMaxSize];
  alignas(64) C out[kUnitRows][kMaxSize];
  C most[kUnitRows];
  double sum[kUnitRows];

  int64_t query(int r) const { return Rows::query(first_row + r); }
  int64_t head_of(int r) const { return Rows::head_of(first_row + r); }
  int position(int r) const { return Rows::position(first_row + r); }

  void begin() {
    for (int r = 0; r < rows; ++r) {
      load_head<T>(p.q.data, p.q.at(batch, query(r), head_of(r)), p.size, kSame, C{1}, q[r]);
      const D d;
      for (int i = 0; i < kMaxSize; i += static_cast<int>(hn::Lanes(d)))
        hn::StoreU(hn::Zero(d), d, out[r] + i);
      most[r] = kNegativeInfinity<C>;
      sum[r] = 0;
    }
  }

  // Loads keys and values first … first + count - 1.
  void load(int64_t first, int count) {
    for (int i = 0; i < count; ++i) {
      C k_scale = 1, v_scale = 1;
      if (p.cache != kSame) {
        k_scale = static_cast<C>(p.k_scale.data[p.k_scale.at(batch, first + i, head)]);
        v_scale = static_cast<C>(p.v_scale.data[p.v_scale.at(batch, first + i, head)]);
      }
      load_head<T>(p.k.data, p.k.at(batch, first + i, head), p.size, p.cache, k_scale, keys[i],
                   p.key_element);
      load_head<T>(p.v.data, p.v.at(batch, first + i, head), p.size, p.cache, v_scale, values[i]);
    }
  }

  void add(int r, int64_t first, int count) {
    const int at = position(r);
    const int64_t see_first = p.first(at), see_end = p.end(length, at);
    if (first >= see_end || first + count <= see_first) return;
    alignas(64) C score[kKeys];
    C now = most[r];
    for (int i = 0; i < kKeys; ++i) {
      const int64_t key = first + i;
      score[i] = kNegativeInfinity<C>;
      if (i >= count || key < see_first || key >= see_end) continue;
      score[i] = this->score(first_row + r, key, dot(q[r], keys[i], p.size));
      now = score[i] > now ? score[i] : now;
    }
    const D d;
    const int lanes = static_cast<int>(hn::Lanes(d));
    if (now > most[r] && most[r] != kNegativeInfinity<C>) {
      const double factor = __builtin_exp(static_cast<double>(most[r]) - static_cast<double>(now));
      sum[r] *= factor;
      const auto by = hn::Set(d, static_cast<C>(factor));
      for (int i = 0; i < p.size; i += lanes)
        hn::StoreU(hn::Mul(hn::LoadU(d, out[r] + i), by), d, out[r] + i);
    }
    most[r] = now;
    make_weights(score, now == kNegativeInfinity<C> ? C{0} : now);
    for (int k = 0; k < count; ++k) {
      if (score[k] == 0) continue;  // an unseen value adds nothing, even if it is NaN
      sum[r] += static_cast<double>(score[k]);
      const C kept = score[k] * this->keep_factor(first_row + r, first + k);
      if (kept != 0) add_head(kept, values[k], p.size, out[r]);
    }
  }

  void finish() {
    for (int r = 0; r < rows; ++r) {
      T* const to = static_cast<T*>(p.out.data) + p.out.at(batch, query(r), head_of(r));
      store_head(out[r], static_cast<C>(sum[r] == 0 ? 0 : 1 / sum[r]), p.size, to);
      if (!p.lse.data) continue;
      const double lse =
          sum[r] == 0 ? -HUGE_VAL : static_cast<double>(most[r]) + __builtin_log(sum[r]);
      const int64_t at = p.lse.at(batch, head_of(r), query(r));
      if (p.lse.wide)
        static_cast<double*>(p.lse.data)[at] = lse;
      else
        static_cast<float*>(p.lse.data)[at] = static_cast<float>(lse);
    }
  }
};

template <class T>
void attend_units(const Job& job, int64_t begin, int64_t end) {
  const Params& p = job.params;
  const int64_t rows = int64_t{p.queries} * p.group;
  for (int64_t unit = begin; unit < end; ++unit) {
    Unit<T> of(job, unit / job.row_units);
    of.first_row = unit % job.row_units * kUnitRows;
    of.rows = static_cast<int>(rows - of.first_row < kUnitRows ? rows - of.first_row : kUnitRows);
    of.begin();
    const int64_t first = p.first(of.position(0)),
                  last = p.end(of.length, of.position(of.rows - 1));
    for (int64_t key = first; key < last; key += kKeys) {
      const int count = static_cast<int>(last - key < kKeys ? last - key : kKeys);
      of.load(key, count);
      for (int r = 0; r < of.rows; ++r) of.add(r, key, count);
    }
    of.finish();
  }
}

void attend(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { attend_units<decltype(zero)>(job, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace attention
