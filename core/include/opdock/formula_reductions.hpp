// opdock/formula_reductions.hpp: reductions of a row, for the compiled CPU code of formulas.
// SPDX-License-Identifier: Apache-2.0
//
// Each is given the vectors of a row in their order, by add(part, value), and has the result in all
// elements of total().
#ifndef OPDOCK_FORMULA_REDUCTIONS_HPP_
#define OPDOCK_FORMULA_REDUCTIONS_HPP_

#include "opdock/formula_operations.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

// Returns the value where there are elements, and `other` behind the row's end.
template <class Value>
HWY_INLINE Value or_else(Whole, Value value, Value) {
  return value;
}
template <class Value>
HWY_INLINE Value or_else(Part part, Value value, Value other) {
  return where(hn::FirstN(FloatTag(), static_cast<size_t>(part.count)), value, other);
}
HWY_INLINE Bools or_else(Part part, Bools value, Bools other) {
  const Bools is_inside = hn::FirstN(FloatTag(), static_cast<size_t>(part.count));
  return hn::Or(hn::And(is_inside, value), hn::AndNot(is_inside, other));
}

HWY_INLINE Floats number_like(Floats, double number) {
  return floats(static_cast<float>(number));
}
HWY_INLINE Doubles number_like(Doubles, double number) {
  return doubles(number);
}

// Sums of floats are added up in double, so that the error hardly grows with the row's length.
template <class Value>
class Sum {
 public:
  template <class P>
  HWY_INLINE void add(P part, Value value) {
    total_ = formula::OPDOCK_SIMD_LEVEL::add(total_, to_doubles(or_else(part, value, zero())));
  }
  HWY_INLINE double number() const {
    double lanes[kLanes], all = 0;
    write(total_, lanes);
    for (const double lane : lanes) all += lane;
    return all;
  }
  HWY_INLINE Value total() const { return number_like(zero(), number()); }

 private:
  static HWY_INLINE Value zero() { return number_like(Value(), 0); }
  Doubles total_ = doubles(0);
};

// Adds the elements of a vector to as many sums over rows.
template <class Value>
HWY_INLINE void add_to_sums(Whole, Value value, double* sums) {
  write(add(read(sums), to_doubles(value)), sums);
}
template <class Value>
HWY_INLINE void add_to_sums(Part part, Value value, double* sums) {
  double lanes[kLanes];
  write(to_doubles(value), lanes);
  for (int64_t k = 0; k < part.count; ++k) sums[k] += lanes[k];
}

template <>
class Sum<Longs> {
 public:
  template <class P>
  HWY_INLINE void add(P part, Longs value) {
    total_ = formula::OPDOCK_SIMD_LEVEL::add(total_, or_else(part, value, longs(0)));
  }
  HWY_INLINE Longs total() const {
    int64_t lanes[kLanes];
    write(total_, lanes);
    uint64_t all = 0;
    for (const int64_t lane : lanes) all += static_cast<uint64_t>(lane);
    return longs(static_cast<int64_t>(all));
  }

 private:
  Longs total_ = longs(0);
};

template <class Value>
class Mean {
 public:
  explicit HWY_INLINE Mean(int64_t columns) : columns_(static_cast<double>(columns)) {}
  template <class P>
  HWY_INLINE void add(P part, Value value) {
    sum_.add(part, value);
  }
  HWY_INLINE Value total() const { return number_like(Value(), sum_.number() / columns_); }

 private:
  Sum<Value> sum_;
  double columns_;
};

template <class Value>
class Prod {
 public:
  template <class P>
  HWY_INLINE void add(P part, Value value) {
    total_ = mul(total_, to_doubles(or_else(part, value, number_like(Value(), 1))));
  }
  HWY_INLINE Value total() const {
    double lanes[kLanes], all = 1;
    write(total_, lanes);
    for (const double lane : lanes) all *= lane;
    return number_like(Value(), all);
  }

 private:
  Doubles total_ = doubles(1);
};
template <>
class Prod<Longs> {
 public:
  template <class P>
  HWY_INLINE void add(P part, Longs value) {
    total_ = mul(total_, or_else(part, value, longs(1)));
  }
  HWY_INLINE Longs total() const {
    int64_t lanes[kLanes];
    write(total_, lanes);
    uint64_t all = 1;
    for (const int64_t lane : lanes) all *= static_cast<uint64_t>(lane);
    return longs(static_cast<int64_t>(all));
  }

 private:
  Longs total_ = longs(1);
};

// Returns the largest (smallest) number of an empty row.
template <bool kLargest>
HWY_INLINE Floats worst(Floats) {
  return floats(static_cast<float>(kLargest ? -HUGE_VAL : HUGE_VAL));
}
template <bool kLargest>
HWY_INLINE Doubles worst(Doubles) {
  return doubles(kLargest ? -HUGE_VAL : HUGE_VAL);
}
template <bool kLargest>
HWY_INLINE Longs worst(Longs) {
  return longs(kLargest ? INT64_MIN : INT64_MAX);
}

template <bool kLargest, class T>
HWY_INLINE bool is_better(T a, T best) {
  return (kLargest ? a > best : a < best) || (a != a && best == best);
}
// Returns which elements of `a` are better than those of `best`; a NaN is better than any number.
template <bool kLargest, class Value>
HWY_INLINE Bools better(Value a, Value best) {
  const Bools is_more = kLargest ? gt(a, best) : lt(a, best);
  return hn::Or(is_more, hn::AndNot(isnan(best), isnan(a)));
}
template <bool kLargest>
HWY_INLINE Bools better(Longs a, Longs best) {
  return kLargest ? gt(a, best) : lt(a, best);
}

// The largest or smallest number; NaN if one is NaN.
template <class Value, bool kLargest>
class Extreme {
 public:
  template <class P>
  HWY_INLINE void add(P part, Value value) {
    value = or_else(part, value, worst<kLargest>(Value()));
    best_ = kLargest ? maximum(best_, value) : minimum(best_, value);
  }
  HWY_INLINE Value total() const {
    typename ElementOf<Value>::type lanes[kLanes];
    write(best_, lanes);
    auto best = lanes[0];
    for (const auto lane : lanes)
      if (is_better<kLargest>(lane, best)) best = lane;
    for (auto& lane : lanes) lane = best;
    return read(lanes);
  }

 private:
  Value best_ = worst<kLargest>(Value());
};
// An empty row of integers of fewer bits has the low bits of the smallest 64-bit integer.
template <bool kLargest>
class Extreme<Ints, kLargest> {
 public:
  template <class P>
  HWY_INLINE void add(P part, Ints value) {
    value = or_else(part, value, ints(kLargest ? INT32_MIN : INT32_MAX));
    best_ = kLargest ? hn::Max(best_, value) : hn::Min(best_, value);
    is_empty_ = false;
  }
  HWY_INLINE Ints total() const {
    if (is_empty_) return ints(kLargest ? 0 : -1);
    int32_t lanes[kLanes];
    write(best_, lanes);
    int32_t best = lanes[0];
    for (const int32_t lane : lanes)
      if (is_better<kLargest>(lane, best)) best = lane;
    return ints(best);
  }

 private:
  Ints best_ = ints(kLargest ? INT32_MIN : INT32_MAX);
  bool is_empty_ = true;
};
template <class Value>
using Amax = Extreme<Value, true>;
template <class Value>
using Amin = Extreme<Value, false>;

// The column of the first element that is the largest or smallest, that of the first NaN.
template <class Value, bool kLargest>
class ExtremeColumn {
 public:
  template <class P>
  HWY_INLINE void add(P part, Value value) {
    value = or_else(part, value, worst<kLargest>(Value()));
    const Bools is_better = better<kLargest>(value, best_);
    best_ = where(is_better, value, best_);
    vector_ = where(is_better, longs(now_), vector_);
    ++now_;
  }
  HWY_INLINE Longs total() const {
    typename ElementOf<Value>::type lanes[kLanes];
    int64_t vectors[kLanes];
    write(best_, lanes);
    write(vector_, vectors);
    auto best = lanes[0];
    int64_t column = vectors[0] * kLanes;
    for (int64_t k = 1; k < kLanes; ++k) {
      const int64_t own = vectors[k] * kLanes + k;
      const bool is_equal = lanes[k] == best || (lanes[k] != lanes[k] && best != best);
      if (!is_better<kLargest>(lanes[k], best) && !(is_equal && own < column)) continue;
      best = lanes[k];
      column = own;
    }
    return longs(column);
  }

 private:
  Value best_ = worst<kLargest>(Value());
  Longs vector_ = longs(0);  // the number of the vector that has the best element
  int64_t now_ = 0;
};
template <bool kLargest>
class ExtremeColumn<Ints, kLargest> {
 public:
  template <class P>
  HWY_INLINE void add(P part, Ints value) {
    wide_.add(part, to_longs(value));
  }
  HWY_INLINE Longs total() const { return wide_.total(); }

 private:
  ExtremeColumn<Longs, kLargest> wide_;
};
template <class Value>
using Argmax = ExtremeColumn<Value, true>;
template <class Value>
using Argmin = ExtremeColumn<Value, false>;

class Any {
 public:
  template <class P>
  HWY_INLINE void add(P part, Bools value) {
    any_ = hn::Or(any_, or_else(part, value, bools(false)));
  }
  HWY_INLINE Bools total() const { return bools(!hn::AllFalse(FloatTag(), any_)); }

 private:
  Bools any_ = bools(false);
};
class All {
 public:
  template <class P>
  HWY_INLINE void add(P part, Bools value) {
    all_ = hn::And(all_, or_else(part, value, bools(true)));
  }
  HWY_INLINE Bools total() const { return bools(hn::AllTrue(FloatTag(), all_)); }

 private:
  Bools all_ = bools(true);
};

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_REDUCTIONS_HPP_
