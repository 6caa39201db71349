// Updates elements of a tensor on the CPU by each optimizer's rule, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "steps_cpu.h"

namespace optimizer {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// 16-bit elements are converted to float and back in pieces of this size, which stay in the
// first-level cache.
constexpr int64_t kPiece = 512;

template <class C>
const Factor<C>& of(const Factors& factors) {
  if constexpr (sizeof(C) == 8) {
    return factors.wide;
  } else {
    return factors.narrow;
  }
}

// Returns before * old + factor * value + more, rounded once to the size of `old`.
template <class C, class D, class V>
HWY_INLINE V blend(D d, const Factor<C>& before, V old, V factor, V value, V more) {
  const V added = hn::MulAdd(hn::Set(d, before.low), old, more);
  return hn::MulAdd(hn::Set(d, before.high), old, hn::MulAdd(factor, value, added));
}

// Returns keep * weight - rate * change.
template <class C, class D, class V>
HWY_INLINE V moved(D d, const Factor<C>& keep, V weight, const Factor<C>& rate, V change) {
  const V rest = hn::Mul(hn::Set(d, -rate.low), change);
  return blend(d, keep, weight, hn::Set(d, -rate.high), change, rest);
}

// The gradient that a rule uses. kPlain: the numbers are those of a Grads that changes nothing.
template <class C, bool kPlain>
struct Gradient {
  C scale, sign, weight_decay;

  explicit Gradient(const Grads& grads)
      : scale(static_cast<C>(grads.scale)),
        sign(static_cast<C>(grads.sign)),
        weight_decay(static_cast<C>(grads.weight_decay)) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V g, V w) const {
    if constexpr (!kPlain) {
      g = hn::Mul(hn::Div(g, hn::Set(d, scale)), hn::Set(d, sign));
      if (weight_decay != 0) g = hn::MulAdd(hn::Set(d, weight_decay), w, g);
    }
    return g;
  }
};

// The two averages of Adam and LAMB.
template <class C>
struct Averages {
  Factor<C> beta1, beta2;
  C rest1, rest2;

  template <class Numbers>
  explicit Averages(const Numbers& numbers)
      : beta1(of<C>(numbers.beta1)),
        beta2(of<C>(numbers.beta2)),
        rest1(static_cast<C>(numbers.rest1)),
        rest2(static_cast<C>(numbers.rest2)) {}
  template <class D, class V>
  HWY_INLINE void update(D d, V g, V& m, V& v) const {
    const auto zero = hn::Zero(d);
    m = blend(d, beta1, m, hn::Set(d, rest1), g, zero);
    v = blend(d, beta2, v, hn::Mul(hn::Set(d, rest2), g), g, zero);
  }
};

// A rule's step() gets vectors of weights, gradients and states, or single elements. C: the type
// that it computes in, float or double. kPlain: as in Gradient.
struct Usual {
  static constexpr bool kReadsGrads = true, kWritesStates = true, kWritesWeights = true;
};

template <class C, bool kPlain>
struct Adam : Usual {
  static constexpr int kStates = 2;
  Gradient<C, kPlain> gradient;
  Averages<C> averages;
  Factor<C> rate, keep;
  C eps;

  explicit Adam(const AdamNumbers& numbers)
      : gradient(numbers.grads),
        averages(numbers),
        rate(of<C>(numbers.rate)),
        keep(of<C>(numbers.keep)),
        eps(static_cast<C>(numbers.eps)) {}
  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V g, V& m, V& v) const {
    averages.update(d, gradient(d, g, w), m, v);
    w = moved(d, keep, w, rate, hn::Div(m, hn::Add(hn::Sqrt(v), hn::Set(d, eps))));
  }
};

template <class C, bool kPlain>
struct Lion : Usual {
  static constexpr int kStates = 1;
  Gradient<C, kPlain> gradient;
  Averages<C> averages;
  Factor<C> rate, keep;

  explicit Lion(const LionNumbers& numbers)
      : gradient(numbers.grads),
        averages(numbers),
        rate(of<C>(numbers.rate)),
        keep(of<C>(numbers.keep)) {}
  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V g, V& m, V&) const {
    g = gradient(d, g, w);
    const auto zero = hn::Zero(d), one = hn::Set(d, C(1));
    const auto ahead = blend(d, averages.beta1, m, hn::Set(d, averages.rest1), g, zero);
    m = blend(d, averages.beta2, m, hn::Set(d, averages.rest2), g, zero);
    // The sign; it is 0 of 0 and NaN of NaN.
    const auto falls = hn::IfThenElse(hn::Lt(ahead, zero), hn::Neg(one), ahead);
    w = moved(d, keep, w, rate, hn::IfThenElse(hn::Gt(ahead, zero), one, falls));
  }
};

template <class C, bool kPlain>
struct Adagrad : Usual {
  static constexpr int kStates = 1;
  Gradient<C, kPlain> gradient;
  C rate, eps;

  explicit Adagrad(const AdagradNumbers& numbers)
      : gradient(numbers.grads),
        rate(static_cast<C>(numbers.rate)),
        eps(static_cast<C>(numbers.eps)) {}
  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V g, V& sum, V&) const {
    g = gradient(d, g, w);
    sum = hn::MulAdd(g, g, sum);
    const auto change = hn::Div(g, hn::Add(hn::Sqrt(sum), hn::Set(d, eps)));
    w = hn::MulAdd(hn::Set(d, -rate), change, w);
  }
};

// The averages alone.
template <class C, bool kPlain>
struct LambAverages : Usual {
  static constexpr int kStates = 2;
  static constexpr bool kWritesWeights = false;
  Gradient<C, kPlain> gradient;
  Averages<C> averages;

  explicit LambAverages(const LambNumbers& numbers) : gradient(numbers.grads), averages(numbers) {}
  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V g, V& m, V& v) const {
    averages.update(d, gradient(d, g, w), m, v);
  }
};

// The change of a weight, before the trust ratio and the learning rate.
template <class C>
struct LambChange {
  static constexpr int kStates = 2;
  static constexpr bool kReadsGrads = false, kWritesStates = false;
  C eps, weight_decay;
  bool is_eps_inside_sqrt;

  explicit LambChange(const LambNumbers& numbers)
      : eps(static_cast<C>(numbers.eps)),
        weight_decay(static_cast<C>(numbers.weight_decay)),
        is_eps_inside_sqrt(numbers.is_eps_inside_sqrt) {}
  template <class D, class V>
  HWY_INLINE V change(D d, V w, V m, V v) const {
    const auto more = hn::Set(d, eps);
    const V root = is_eps_inside_sqrt ? hn::Sqrt(hn::Add(v, more)) : hn::Add(hn::Sqrt(v), more);
    return hn::MulAdd(hn::Set(d, weight_decay), w, hn::Div(m, root));
  }
};

template <class C, bool kPlain>
struct LambSquares : LambChange<C> {
  static constexpr bool kWritesWeights = false;
  simd::Sum<C> weights, changes;

  using LambChange<C>::LambChange;
  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V, V& m, V& v) {
    const V change = this->change(d, w, m, v);
    weights.add(hn::Mul(w, w));
    changes.add(hn::Mul(change, change));
  }
};

template <class C, bool kPlain>
struct LambMove : LambChange<C> {
  static constexpr bool kWritesWeights = true;
  C factor;

  explicit LambMove(const LambNumbers& numbers)
      : LambChange<C>(numbers), factor(static_cast<C>(numbers.factor)) {}
  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V, V& m, V& v) const {
    w = hn::MulAdd(hn::Set(d, -factor), this->change(d, w, m, v), w);
  }
};

// Updates n elements that have the rule's type. state[1] is not read if the rule has one state.
template <class C, class Rule>
void update_vectors(Rule& rule, C* weight, const C* grad, C* const (&state)[2], int64_t n) {
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    auto w = hn::LoadU(d, weight + i);
    auto g = w, m = hn::LoadU(d, state[0] + i), v = m;
    if constexpr (Rule::kReadsGrads) g = hn::LoadU(d, grad + i);
    if constexpr (Rule::kStates == 2) v = hn::LoadU(d, state[1] + i);
    rule.step(d, w, g, m, v);
    if constexpr (Rule::kWritesWeights) hn::StoreU(w, d, weight + i);
    if constexpr (Rule::kWritesStates) hn::StoreU(m, d, state[0] + i);
    if constexpr (Rule::kWritesStates && Rule::kStates == 2) hn::StoreU(v, d, state[1] + i);
  });
}

#if HWY_NATIVE_FMA
using FloatCompute = float;
template <class Rule>
void update_floats(Rule& rule, float* weight, const float* grad, float* const (&state)[2],
                   int64_t n) {
  update_vectors<float>(rule, weight, grad, state, n);
}
#else
// Computes in double: without FMA each product would be rounded, which loses Factor's extra digits.
using FloatCompute = double;
template <class Rule>
void update_floats(Rule& rule, float* weight, const float* grad, float* const (&state)[2],
                   int64_t n) {
  const float* const from[4] = {weight, Rule::kReadsGrads ? grad : nullptr, state[0],
                                Rule::kStates == 2 ? state[1] : nullptr};
  float* const to[4] = {Rule::kWritesWeights ? weight : nullptr, nullptr,
                        Rule::kWritesStates ? state[0] : nullptr,
                        Rule::kWritesStates && Rule::kStates == 2 ? state[1] : nullptr};
  double room[4][kPiece];
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t count = n - at < kPiece ? n - at : kPiece;
    for (int k = 0; k < 4; ++k)
      for (int64_t i = 0; from[k] != nullptr && i < count; ++i)
        room[k][i] = static_cast<double>(from[k][at + i]);
    update_vectors<double>(rule, room[0], room[1], {room[2], room[3]}, count);
    for (int k = 0; k < 4; ++k)
      for (int64_t i = 0; to[k] != nullptr && i < count; ++i)
        to[k][at + i] = static_cast<float>(room[k][i]);
  }
}
#endif

bool is_float(opdock_dtype dtype) {
  return dtype.code == OPDOCK_DTYPE_FLOAT && dtype.bits == 32;
}

// Returns elements of an array of any dtype as float: in place if they are float, else in `room`.
float* widen(opdock_dtype dtype, const void* array, int64_t begin, int64_t n, float* room) {
  if (is_float(dtype)) return static_cast<float*>(const_cast<void*>(array)) + begin;
  simd::dispatch(dtype, [&](auto zero) {
    if constexpr (sizeof zero == 2) {
      const auto* from = static_cast<const decltype(zero)*>(array) + begin;
      simd::for_each_vector<float>(
          n, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(simd::load(d, from + i), d, room + i); });
    }
  });
  return room;
}

void narrow(opdock_dtype dtype, const float* from, void* array, int64_t begin, int64_t n) {
  if (is_float(dtype)) return;  // they were computed in place
  simd::dispatch(dtype, [&](auto zero) {
    if constexpr (sizeof zero == 2) {
      auto* to = static_cast<decltype(zero)*>(array) + begin;
      simd::for_each_vector<float>(
          n, [&](auto d, int64_t i) HWY_ATTR { simd::store(d, hn::LoadU(d, from + i), to + i); });
    }
  });
}

template <class Rule>
void update_narrow(const Dtypes& dtypes, Rule& rule, const Arrays& a, int64_t begin, int64_t end) {
  if (is_float(dtypes.weight) && is_float(dtypes.grad) && is_float(dtypes.state) &&
      a.copy == nullptr) {
    const auto at = [&](void* array) { return static_cast<float*>(array) + begin; };
    return update_floats(rule, at(a.weight), static_cast<const float*>(a.grad) + begin,
                         {at(a.state[0]), Rule::kStates == 2 ? at(a.state[1]) : nullptr},
                         end - begin);
  }
  HWY_ALIGN float room[4][kPiece];
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t n = end - at < kPiece ? end - at : kPiece;
    float* const weight = widen(dtypes.weight, a.weight, at, n, room[0]);
    const float* const grad =
        Rule::kReadsGrads ? widen(dtypes.grad, a.grad, at, n, room[1]) : nullptr;
    float* states[2] = {};
    for (int s = 0; s < Rule::kStates; ++s)
      states[s] = widen(dtypes.state, a.state[s], at, n, room[2 + s]);
    update_floats(rule, weight, grad, {states[0], states[1]}, n);
    for (int s = 0; s < Rule::kStates; ++s)
      if (Rule::kWritesStates) narrow(dtypes.state, states[s], a.state[s], at, n);
    if (Rule::kWritesWeights) narrow(dtypes.weight, weight, a.weight, at, n);
    if (Rule::kWritesWeights && a.copy != nullptr) narrow(dtypes.copy, weight, a.copy, at, n);
  }
}

// Makes the rule, and updates elements begin … end-1 of a tensor by it. finish: called with it
// afterwards.
template <template <class, bool> class Rule, bool kPlain, class Numbers, class Finish>
void update_by(const Dtypes& dtypes, const Numbers& numbers, const Arrays& a, int64_t begin,
               int64_t end, const Finish& finish) {
  if (dtypes.weight.bits == 64) {
    const auto at = [&](void* array) { return static_cast<double*>(array) + begin; };
    Rule<double, kPlain> rule(numbers);
    update_vectors<double>(rule, at(a.weight), static_cast<const double*>(a.grad) + begin,
                           {at(a.state[0]), rule.kStates == 2 ? at(a.state[1]) : nullptr},
                           end - begin);
    finish(rule);
  } else {
    Rule<FloatCompute, kPlain> rule(numbers);
    update_narrow(dtypes, rule, a, begin, end);
    finish(rule);
  }
}

template <template <class, bool> class Rule, class Numbers>
void update(const Dtypes& dtypes, const Numbers& numbers, const Arrays& arrays, int64_t begin,
            int64_t end) {
  const auto nothing = [](const auto&) {};
  if (numbers.grads.is_plain()) {
    update_by<Rule, true>(dtypes, numbers, arrays, begin, end, nothing);
  } else {
    update_by<Rule, false>(dtypes, numbers, arrays, begin, end, nothing);
  }
}

void step_adam(const Dtypes& dtypes, const AdamNumbers& numbers, const Arrays& arrays,
               int64_t begin, int64_t end) {
  update<Adam>(dtypes, numbers, arrays, begin, end);
}

void step_lion(const Dtypes& dtypes, const LionNumbers& numbers, const Arrays& arrays,
               int64_t begin, int64_t end) {
  update<Lion>(dtypes, numbers, arrays, begin, end);
}

void step_adagrad(const Dtypes& dtypes, const AdagradNumbers& numbers, const Arrays& arrays,
                  int64_t begin, int64_t end) {
  update<Adagrad>(dtypes, numbers, arrays, begin, end);
}

void add_lamb_squares(const Dtypes& dtypes, const LambNumbers& numbers, const Arrays& arrays,
                      int64_t begin, int64_t end, double* sums) {
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t last = end - at < kPiece ? end : at + kPiece;
    update<LambAverages>(dtypes, numbers, arrays, at, last);
    // The averages are read again, because their dtype may have rounded them.
    update_by<LambSquares, true>(dtypes, numbers, arrays, at, last, [&](const auto& rule) {
      sums[0] += static_cast<double>(rule.weights.total());
      sums[1] += static_cast<double>(rule.changes.total());
    });
  }
}

void move_lamb(const Dtypes& dtypes, const LambNumbers& numbers, const Arrays& arrays,
               int64_t begin, int64_t end) {
  update_by<LambMove, true>(dtypes, numbers, arrays, begin, end, [](const auto&) {});
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace optimizer
