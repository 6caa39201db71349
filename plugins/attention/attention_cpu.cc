// attention on the CPU, for one instruction set level. A few rows at a time go through the keys, 32
// of which are converted at a time, with running maxima and sums.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "attention_cpu.h"
#include "opdock/simd_exp.hpp"
#include "opdock/simd_row.hpp"

namespace attention {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

constexpr int kKeys = 32;
template <class C>
constexpr C kNegativeInfinity = static_cast<C>(-HUGE_VAL);

// Loads one head's elements as C, padded with zeros to whole vectors. scale: multiplies 8-bit
// elements. step: distance between elements, 1 for 8-bit ones.
template <class T, class C>
HWY_INLINE void load_head(const void* data, int64_t at, int size, int kind, C scale, C* to,
                          int64_t step = 1) {
  if (kind == kSame) {
    const T* const from = static_cast<const T*>(data) + at;
    if (step != 1) {
      T one[kMaxSize];
      for (int i = 0; i < size; ++i) one[i] = from[i * step];
      return load_head<T>(one, 0, size, kind, scale, to);
    }
    simd::for_row<C>(size, [&](const auto& vector, auto, int64_t i) HWY_ATTR {
      hn::StoreU(vector.load(from + i), simd::FullTag<C>(), to + i);
    });
    return;
  }
  const auto* const from = static_cast<const unsigned char*>(data) + at;
  const int lanes = static_cast<int>(hn::Lanes(simd::FullTag<C>()));
  for (int i = 0; i < (size + lanes - 1) / lanes * lanes; ++i) {
    const C value = i >= size       ? C{0}
                    : kind == kInt8 ? static_cast<C>(static_cast<signed char>(from[i]))
                                    : static_cast<C>(float8_value(from[i]));
    to[i] = value * scale;
  }
}

template <class C>
HWY_INLINE C dot(const C* a, const C* b, int64_t size) {
  simd::RowSum<C> sum;
  const simd::FullTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = (size + lanes - 1) / lanes * lanes;
  simd::for_row<C>(whole, [&](const auto&, auto slot, int64_t i) HWY_ATTR {
    sum.add_product(slot, hn::LoadU(d, a + i), hn::LoadU(d, b + i));
  });
  return static_cast<C>(sum.total());
}

template <class T>
struct Unit {
  using C = typename simd::Compute<T>::type;
  using D = simd::FullTag<C>;
  const Params& p;
  const C scale;
  int64_t batch, head, first_row;
  int rows, length;
  explicit Unit(const Job& job) : p(job.params), scale(static_cast<C>(job.scale)) {}

  alignas(64) C keys[kKeys][kMaxSize];
  alignas(64) C values[kKeys][kMaxSize];
  alignas(64) C q[kUnitRows][kMaxSize];
  alignas(64) C out[kUnitRows][kMaxSize];
  C most[kUnitRows];
  double sum[kUnitRows];

  int64_t query(int r) const { return (first_row + r) / p.group; }
  int64_t head_of(int r) const { return head * p.group + (first_row + r) % p.group; }
  int position(int r) const { return p.position(length, static_cast<int>(query(r))); }

  C added(const Added& of, int r, int64_t key) const {
    if (!of.data) return 0;
    const int64_t at = batch * of.batch + head_of(r) * of.head + query(r) * of.query + key * of.key;
    if (of.wide) return static_cast<C>(static_cast<const float*>(of.data)[at]);
    const hn::CappedTag<C, 1> one;
    return hn::GetLane(simd::load(one, static_cast<const T*>(of.data) + at));
  }

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
      score[i] = dot(q[r], keys[i], p.size) * scale + added(p.mask, r, key) + added(p.bias, r, key);
      if (p.slopes) score[i] += static_cast<C>(p.slopes[head_of(r)]) * static_cast<C>(key - at);
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
    const auto by = hn::Set(d, static_cast<C>(1 / static_cast<double>(simd::kExpFactor<C>)));
    const auto less = hn::Set(d, now == kNegativeInfinity<C> ? C{0} : now);
    for (int i = 0; i < kKeys; i += lanes)
      hn::StoreU(hn::Mul(simd::exp_times(d, hn::Sub(hn::LoadU(d, score + i), less)), by), d,
                 score + i);
    for (int k = 0; k < count; ++k) {
      if (score[k] == 0) continue;  // an unseen value adds nothing, even if it is NaN
      sum[r] += static_cast<double>(score[k]);
      const auto weight = hn::Set(d, score[k]);
      for (int i = 0; i < p.size; i += lanes)
        hn::StoreU(hn::MulAdd(weight, hn::LoadU(d, values[k] + i), hn::LoadU(d, out[r] + i)), d,
                   out[r] + i);
    }
  }

  void finish() {
    for (int r = 0; r < rows; ++r) {
      T* const to = static_cast<T*>(p.out.data) + p.out.at(batch, query(r), head_of(r));
      const C factor = static_cast<C>(sum[r] == 0 ? 0 : 1 / sum[r]);
      simd::for_row<C>(p.size, [&](const auto& vector, auto, int64_t i) HWY_ATTR {
        const D d;
        vector.store(hn::Mul(hn::LoadU(d, out[r] + i), hn::Set(d, factor)), to + i);
      });
    }
  }
};

template <class T>
void attend_units(const Job& job, int64_t begin, int64_t end) {
  const Params& p = job.params;
  const int64_t kv_heads = p.heads / p.group, rows = int64_t{p.queries} * p.group;
  for (int64_t unit = begin; unit < end; ++unit) {
    Unit<T> of(job);
    const int64_t of_batch = unit / job.row_units;
    of.batch = of_batch / kv_heads;
    of.head = of_batch % kv_heads;
    of.first_row = unit % job.row_units * kUnitRows;
    of.rows = static_cast<int>(rows - of.first_row < kUnitRows ? rows - of.first_row : kUnitRows);
    of.length = p.length(of.batch);
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
