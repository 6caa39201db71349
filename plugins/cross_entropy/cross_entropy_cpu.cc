// Cross entropy of rows begin … end-1 and its gradient on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "cross_entropy_cpu.h"
#include "opdock/simd_exp.hpp"
#include "opdock/simd_row.hpp"

namespace cross_entropy {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

template <class C>
constexpr C kNegativeInfinity = static_cast<C>(-HUGE_VAL);

// The maximum and the sums of a row's logits.
template <class C>
struct Total {
  C most = kNegativeInfinity<C>;  // largest logit; 0 if none is finite
  double sum = 0;    // sum of e^(logit - most); NaN if all are -inf, or one is NaN or +inf
  double plain = 0;  // sum of the logits, if requested (Plain)
};

// Returns the largest of `count` logits, at most a block.
template <class C, class T>
HWY_INLINE C maximum(const T* logits, int64_t count) {
  simd::RowMaximum<C> of;
  simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
    of.add(slot, vector.or_else(vector.load(logits + i), kNegativeInfinity<C>));
  });
  return of.total();
}

// Adds a block's logits to the total, whose `most` is up to date. If Keep, stores e^(logit - most),
// times kExpFactor, in `kept`.
template <bool Keep, bool Plain, class C, class T>
HWY_INLINE void add_block(const T* logits, int64_t count, C* kept, Total<C>* total) {
  const C subtract = total->most > kNegativeInfinity<C> ? total->most : C{0};
  simd::RowSum<C> powers, below;
  simd::for_row<C>(count, [&](auto vector, auto slot, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    const auto v = hn::Sub(vector.load(logits + i), hn::Set(d, subtract));
    const auto e = simd::exp_times(d, v);
    if constexpr (Keep) vector.store_whole(e, kept + i);
    powers.add(slot, vector.or_else(e, 0));
    if constexpr (Plain) below.add(slot, vector.or_else(v, 0));
  });
  total->sum += powers.total() / static_cast<double>(simd::kExpFactor<C>);
  if constexpr (Plain)
    total->plain += below.total() + static_cast<double>(count) * static_cast<double>(subtract);
}

template <bool Keep, bool Plain, class C, class T>
Total<C> total_of(const T* logits, int64_t n, C* kept) {
  Total<C> total;
  for (int64_t begin = 0; begin < n; begin += simd::kRowBlock<C>) {
    const int64_t count = n - begin < simd::kRowBlock<C> ? n - begin : simd::kRowBlock<C>;
    const C here = maximum<C>(logits + begin, count);
    if (here > total.most) {
      if (total.sum != 0)
        total.sum *= __builtin_exp(static_cast<double>(total.most) - static_cast<double>(here));
      total.most = here;
    }
    add_block<Keep, Plain>(logits + begin, count, kept, &total);
  }
  if (!(total.most > kNegativeInfinity<C>)) {
    total.most = 0;
    total.sum = __builtin_nan("");
  }
  return total;
}

// Writes e^(logit - most) * factor + offset for each element.
template <bool Keep, class C, class T>
void write(const T* logits, int64_t n, const C* kept, const Total<C>& total, double factor,
           double offset, T* out) {
  // If combining kExpFactor with the factor would give a subnormal number, kExpFactor is divided
  // out separately.
  const double bare = factor / static_cast<double>(simd::kExpFactor<C>);
  const bool in_two = sizeof(C) == 4 && (bare < 0 ? -bare : bare) < 0x1p-100;
  const C first = static_cast<C>(in_two ? 1 / static_cast<double>(simd::kExpFactor<C>) : 1);
  const double exact = in_two ? factor : bare;
  const C high = static_cast<C>(exact), low = static_cast<C>(exact - static_cast<double>(high)),
          shift = static_cast<C>(offset);
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    auto e = [&]() HWY_ATTR {
      if constexpr (Keep) return vector.load_whole(kept + i);
      return simd::exp_times(d, hn::Sub(vector.load(logits + i), hn::Set(d, total.most)));
    }();
    e = hn::Mul(e, hn::Set(d, first));
    auto rest = hn::Set(d, shift);
    // `low` compensates the factor's rounding, for elements as wide as the factor.
    if constexpr (sizeof(T) == sizeof(C)) rest = hn::MulAdd(e, hn::Set(d, low), rest);
    vector.store(hn::MulAdd(e, hn::Set(d, high), rest), out + i);
  });
}

template <class C, class T>
void fill(T* out, int64_t n, C value) {
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    vector.store(hn::Set(typename decltype(vector)::D(), value), out + i);
  });
}

double get(const void* from, int64_t offset, bool is_double) {
  return is_double ? static_cast<const double*>(from)[offset]
                   : static_cast<double>(static_cast<const float*>(from)[offset]);
}
void put(double value, void* to, int64_t offset, bool is_double) {
  if (is_double)
    static_cast<double*>(to)[offset] = value;
  else
    static_cast<float*>(to)[offset] = static_cast<float>(value);
}

template <class T, bool Keep, bool Plain>
void rows(const Job& job, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const Params& p = job.params;
  const simd::OneTag<C> one;
  const double share = job.smoothing / static_cast<double>(p.length);
  // This has room for whole vectors.
  alignas(64) C room[Keep ? simd::kRowBlock<C> : 1];
  C* const kept = Keep ? room : nullptr;
  simd::RowCursor<decltype(p.rows), 5> cursor(p.rows, begin);
  for (int64_t r = begin; r < end; ++r, cursor.next()) {
    const T* const logits = static_cast<const T*>(p.logits) + cursor.offset(0);
    T* const out = p.gradient ? static_cast<T*>(p.gradient) + cursor.offset(4) : nullptr;
    const long long target = p.target_at(cursor.offset(1));
    if (target == p.ignore_index) {
      if (p.loss) put(0, p.loss, cursor.offset(3), job.is_double_loss);
      if (out) fill<C>(out, p.length, 0);
      continue;
    }
    const double logit = static_cast<double>(hn::GetLane(simd::load(one, logits + target)));
    const Total<C> total = total_of<Keep, Plain, C>(logits, p.length, kept);
    const double most = static_cast<double>(total.most);
    if (p.loss) {
      const double log_sum = __builtin_log(total.sum) + most;
      double loss = log_sum - logit;
      if constexpr (Plain)
        loss = (1 - job.smoothing) * loss +
               job.smoothing * (log_sum - total.plain / static_cast<double>(p.length));
      put(loss, p.loss, cursor.offset(3), job.is_double_loss);
    }
    if (!out) continue;
    const double scale = p.scale ? get(p.scale, cursor.offset(2), job.is_double_scale) : 1;
    write<Keep>(logits, p.length, kept, total, scale / total.sum, -share * scale, out);
    const double part = __builtin_exp(logit - most) / total.sum;
    const C of_target = static_cast<C>((part - share - (1 - job.smoothing)) * scale);
    simd::store(one, hn::Set(one, of_target), out + target);
  }
}

template <class T>
void rows_of(const Job& job, int64_t begin, int64_t end) {
  using C = typename simd::Compute<T>::type;
  const bool keep = job.params.gradient && job.params.length <= simd::kRowBlock<C>;
  const bool plain = job.params.loss && job.smoothing > 0;
  if (keep)
    plain ? rows<T, true, true>(job, begin, end) : rows<T, true, false>(job, begin, end);
  else
    plain ? rows<T, false, true>(job, begin, end) : rows<T, false, false>(job, begin, end);
}

void run(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { rows_of<decltype(zero)>(job, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace cross_entropy
