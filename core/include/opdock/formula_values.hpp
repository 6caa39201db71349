// opdock/formula_values.hpp: what the compiled CPU code of a formula computes with
// (core/formula/cpu_source.h): values of kLanes elements, conversions, loads and stores.
// SPDX-License-Identifier: Apache-2.0
//
// A value has kLanes elements whatever its type is, so that values of several types are computed in
// one loop. Compile it with -ffp-contract=off: a product and a sum are each rounded.
#ifndef OPDOCK_FORMULA_VALUES_HPP_
#define OPDOCK_FORMULA_VALUES_HPP_

#include <string.h>

#include "opdock/formula_activations.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
inline constexpr int64_t kHalfLanes = static_cast<int64_t>(hn::MaxLanes(DoubleTag()));
// Whether a value of 8-byte elements is two vectors. (A target without vectors has one lane.)
inline constexpr bool kHasHalves = kHalfLanes < kLanes;

using IntTag = hn::Rebind<int32_t, FloatTag>;
using LongTag = hn::Rebind<int64_t, DoubleTag>;
using DoubleV = hn::VFromD<DoubleTag>;
using LongV = hn::VFromD<LongTag>;

// The values. 16-bit floats are computed as Floats, integers of up to 32 bits as Ints, which are
// wrapped to their type after each operation.
using Floats = hn::VFromD<FloatTag>;
using Ints = hn::VFromD<IntTag>;
using Bools = decltype(hn::Eq(Floats(), Floats()));
struct Doubles {
  DoubleV low, high;
};
struct Longs {
  LongV low, high;
};

// The types of elements in memory.
using simd::BFloat16;
using simd::Half;
struct Bool {
  uint8_t byte;
};

// ---- Values as arrays, for operations on one number at a time

template <class Value>
struct ElementOf;
template <>
struct ElementOf<Floats> {
  using type = float;
};
template <>
struct ElementOf<Doubles> {
  using type = double;
};
template <>
struct ElementOf<Ints> {
  using type = int32_t;
};
template <>
struct ElementOf<Longs> {
  using type = int64_t;
};

HWY_INLINE void write(Floats value, float* to) {
  hn::StoreU(value, FloatTag(), to);
}
HWY_INLINE void write(Ints value, int32_t* to) {
  hn::StoreU(value, IntTag(), to);
}
HWY_INLINE void write(Doubles value, double* to) {
  hn::StoreU(value.low, DoubleTag(), to);
  if (kHasHalves) hn::StoreU(value.high, DoubleTag(), to + kHalfLanes);
}
HWY_INLINE void write(Longs value, int64_t* to) {
  hn::StoreU(value.low, LongTag(), to);
  if (kHasHalves) hn::StoreU(value.high, LongTag(), to + kHalfLanes);
}
HWY_INLINE Floats read(const float* from) {
  return hn::LoadU(FloatTag(), from);
}
HWY_INLINE Ints read(const int32_t* from) {
  return hn::LoadU(IntTag(), from);
}
HWY_INLINE Doubles read(const double* from) {
  const DoubleV low = hn::LoadU(DoubleTag(), from);
  return {low, kHasHalves ? hn::LoadU(DoubleTag(), from + kHalfLanes) : low};
}
HWY_INLINE Longs read(const int64_t* from) {
  const LongV low = hn::LoadU(LongTag(), from);
  return {low, kHasHalves ? hn::LoadU(LongTag(), from + kHalfLanes) : low};
}

// Applies a function to each element; the compiler makes vectors of that where it can.
template <class Out, class In, class F>
HWY_INLINE Out lane_by_lane(In a, const F& function) {
  alignas(64) typename ElementOf<In>::type from[kLanes];
  alignas(64) typename ElementOf<Out>::type to[kLanes];
  write(a, from);
  for (int64_t k = 0; k < kLanes; ++k) to[k] = function(from[k]);
  return read(to);
}
template <class Out, class In, class F>
HWY_INLINE Out lane_by_lane(In a, In b, const F& function) {
  alignas(64) typename ElementOf<In>::type from[kLanes], other[kLanes];
  alignas(64) typename ElementOf<Out>::type to[kLanes];
  write(a, from);
  write(b, other);
  for (int64_t k = 0; k < kLanes; ++k) to[k] = function(from[k], other[k]);
  return read(to);
}

// ---- Numbers as values

template <class T>
constexpr T infinite() {
  return static_cast<T>(HUGE_VAL);
}
template <class T>
inline T not_a_number() {
  return static_cast<T>(NAN);
}

HWY_INLINE Floats floats(float number) {
  return hn::Set(FloatTag(), number);
}
HWY_INLINE Doubles doubles(double number) {
  const DoubleV all = hn::Set(DoubleTag(), number);
  return {all, all};
}
HWY_INLINE Ints ints(int32_t number) {
  return hn::Set(IntTag(), number);
}
HWY_INLINE Longs longs(int64_t number) {
  const LongV all = hn::Set(LongTag(), number);
  return {all, all};
}
HWY_INLINE Bools bools(bool number) {
  return hn::MaskFromVec(hn::BitCast(FloatTag(), hn::Set(IntTag(), number ? -1 : 0)));
}
// The numbers of the columns from `first` on.
HWY_INLINE Longs columns_from(int64_t first) {
  alignas(64) int64_t number[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) number[k] = first + k;
  return read(number);
}

// ---- Bools

// A bool is a mask of floats; as Ints it is 0 or -1.
HWY_INLINE Ints mask_bits(Bools value) {
  return hn::BitCast(IntTag(), hn::VecFromMask(FloatTag(), value));
}
HWY_INLINE Bools from_mask_bits(Ints bits) {
  return hn::MaskFromVec(hn::BitCast(FloatTag(), bits));
}

using HalfIntTag = hn::Rebind<int32_t, DoubleTag>;
using HalfIntV = hn::VFromD<HalfIntTag>;
using HalfFloatV = hn::VFromD<NarrowTag>;

// Joins two halves of 4-byte elements, and takes them apart.
template <class D, class V>
HWY_INLINE hn::VFromD<D> join(D d, V low, V high) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  (void)high;
  return low;
#else
  return hn::Combine(d, high, low);
#endif
}
template <class D, class V>
HWY_INLINE hn::VFromD<D> low_half(D d, V value) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return value;
#else
  return hn::LowerHalf(d, value);
#endif
}
template <class D, class V>
HWY_INLINE hn::VFromD<D> high_half(D d, V value) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return value;
#else
  return hn::UpperHalf(d, value);
#endif
}

// Widens the halves of 4-byte integers, and narrows 8-byte integers to their low 32 bits.
HWY_INLINE Longs widen(Ints value) {
  return {hn::PromoteTo(LongTag(), low_half(HalfIntTag(), value)),
          hn::PromoteTo(LongTag(), high_half(HalfIntTag(), value))};
}
HWY_INLINE HalfIntV low_bits(LongV value) {
  const hn::Rebind<uint64_t, DoubleTag> wide;
  const hn::Rebind<uint32_t, DoubleTag> narrow;
  return hn::BitCast(HalfIntTag(), hn::TruncateTo(narrow, hn::BitCast(wide, value)));
}
HWY_INLINE Ints truncate(Longs value) {
  return join(IntTag(), low_bits(value.low), low_bits(value.high));
}

// Masks of the halves of 8-byte elements.
template <class M>
struct Halves {
  M low, high;
};
template <class D>
HWY_INLINE auto halves(D d, Bools value) {
  const Longs bits = widen(mask_bits(value));
  const auto low = hn::MaskFromVec(hn::BitCast(d, bits.low));
  return Halves<decltype(hn::MaskFromVec(hn::BitCast(d, bits.low)))>{
      low, hn::MaskFromVec(hn::BitCast(d, bits.high))};
}
template <class D, class M>
HWY_INLINE Bools joined(D d, M low, M high) {
  return from_mask_bits(truncate({hn::BitCast(LongTag(), hn::VecFromMask(d, low)),
                                  hn::BitCast(LongTag(), hn::VecFromMask(d, high))}));
}

// ---- Conversions

HWY_INLINE Doubles widen(Floats value) {
  return {hn::PromoteTo(DoubleTag(), low_half(NarrowTag(), value)),
          hn::PromoteTo(DoubleTag(), high_half(NarrowTag(), value))};
}
HWY_INLINE Floats narrow(Doubles value) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  // DemoteTo() turns numbers that float does not hold into its largest one.
  return lane_by_lane<Floats>(value, [](double x) { return static_cast<float>(x); });
#else
  return join(FloatTag(), hn::DemoteTo(NarrowTag(), value.low),
              hn::DemoteTo(NarrowTag(), value.high));
#endif
}

HWY_INLINE Floats to_floats(Floats a) {
  return a;
}
HWY_INLINE Floats to_floats(Doubles a) {
  return narrow(a);
}
HWY_INLINE Floats to_floats(Ints a) {
  return hn::ConvertTo(FloatTag(), a);
}
HWY_INLINE Floats to_floats(Longs a) {
  return lane_by_lane<Floats>(a, [](int64_t x) { return static_cast<float>(x); });
}
HWY_INLINE Floats to_floats(Bools a) {
  return hn::IfThenElseZero(a, floats(1));
}
HWY_INLINE Doubles to_doubles(Floats a) {
  return widen(a);
}
HWY_INLINE Doubles to_doubles(Doubles a) {
  return a;
}
HWY_INLINE Doubles to_doubles(Longs a) {
  return lane_by_lane<Doubles>(a, [](int64_t x) { return static_cast<double>(x); });
}
HWY_INLINE Doubles to_doubles(Ints a) {
  return {hn::PromoteTo(DoubleTag(), low_half(HalfIntTag(), a)),
          hn::PromoteTo(DoubleTag(), high_half(HalfIntTag(), a))};
}
HWY_INLINE Doubles to_doubles(Bools a) {
  return widen(to_floats(a));
}
HWY_INLINE Longs to_longs(Floats a) {
  return lane_by_lane<Longs>(a, [](float x) { return scalar::to_integer(x); });
}
HWY_INLINE Longs to_longs(Doubles a) {
  return lane_by_lane<Longs>(a, [](double x) { return scalar::to_integer(x); });
}
HWY_INLINE Longs to_longs(Longs a) {
  return a;
}
HWY_INLINE Longs to_longs(Ints a) {
  return widen(a);
}
HWY_INLINE Longs to_longs(Bools a) {
  return widen(hn::Neg(mask_bits(a)));
}
// The low 32 bits of what to_longs() returns.
HWY_INLINE Ints to_ints(Floats a) {
  const auto fits = hn::And(hn::Ge(a, floats(-2147483648.0f)), hn::Lt(a, floats(2147483648.0f)));
  if (HWY_LIKELY(hn::AllTrue(FloatTag(), fits))) return hn::ConvertTo(IntTag(), a);
  return truncate(to_longs(a));
}
HWY_INLINE Ints to_ints(Doubles a) {
  return truncate(to_longs(a));
}
HWY_INLINE Ints to_ints(Longs a) {
  return truncate(a);
}
HWY_INLINE Ints to_ints(Ints a) {
  return a;
}
HWY_INLINE Ints to_ints(Bools a) {
  return hn::Neg(mask_bits(a));
}
HWY_INLINE Bools to_bools(Floats a) {
  return hn::Not(hn::Eq(a, floats(0)));
}
HWY_INLINE Bools to_bools(Ints a) {
  return from_mask_bits(hn::Not(hn::VecFromMask(IntTag(), hn::Eq(a, ints(0)))));
}
HWY_INLINE Bools to_bools(Doubles a) {
  const DoubleTag d;
  return hn::Not(joined(d, hn::Eq(a.low, hn::Zero(d)), hn::Eq(a.high, hn::Zero(d))));
}
HWY_INLINE Bools to_bools(Longs a) {
  const LongTag d;
  return hn::Not(joined(d, hn::Eq(a.low, hn::Zero(d)), hn::Eq(a.high, hn::Zero(d))));
}
HWY_INLINE Bools to_bools(Bools a) {
  return a;
}

// Wraps integers to their type.
template <class T>
HWY_INLINE Ints wrapped(Ints a) {
  if constexpr (sizeof(T) == 4) {
    return a;
  } else if constexpr (T(-1) > T(0)) {
    return hn::And(a, ints((1 << 8 * sizeof(T)) - 1));
  } else {
    constexpr int kShift = 32 - 8 * static_cast<int>(sizeof(T));
    return hn::ShiftRight<kShift>(hn::ShiftLeft<kShift>(a));
  }
}
// Rounds floats to a 16-bit type.
template <class T>
HWY_INLINE Floats rounded(Floats a) {
  alignas(64) T elements[kLanes];
  simd::store(FloatTag(), a, elements);
  return simd::load(FloatTag(), elements);
}

// ---- Loads and stores

// The elements of a vector: all, or only the first `count` at a row's end.
struct Whole {};
struct Part {
  int64_t count;
};

// Where a row's elements are: one after the other, or kLanes copies of one that is the same in the
// whole row, for which the mask is 0.
template <class T>
struct Column {
  const T* from;
  int64_t mask;
  HWY_INLINE const T* at(int64_t i) const { return from + (i & mask); }
};

HWY_INLINE Floats load_vector(Whole, const float* from) {
  return hn::LoadU(FloatTag(), from);
}
HWY_INLINE Floats load_vector(Whole, const Half* from) {
  return simd::load(FloatTag(), from);
}
HWY_INLINE Floats load_vector(Whole, const BFloat16* from) {
  return simd::load(FloatTag(), from);
}
HWY_INLINE Doubles load_vector(Whole, const double* from) {
  return read(from);
}
HWY_INLINE Longs load_vector(Whole, const int64_t* from) {
  return read(from);
}
HWY_INLINE Ints load_vector(Whole, const int32_t* from) {
  return read(from);
}
HWY_INLINE Ints load_vector(Whole, const int16_t* from) {
  return hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<int16_t, FloatTag>(), from));
}
HWY_INLINE Ints load_vector(Whole, const int8_t* from) {
  return hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<int8_t, FloatTag>(), from));
}
HWY_INLINE Ints load_vector(Whole, const uint8_t* from) {
  return hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<uint8_t, FloatTag>(), from));
}
HWY_INLINE Bools load_vector(Whole, const Bool* from) {
  return to_bools(load_vector(Whole(), &from->byte));
}
template <class T>
HWY_INLINE auto load_vector(Part part, const T* from) {
  alignas(64) T elements[kLanes] = {};
  for (int64_t k = 0; k < part.count; ++k) elements[k] = from[k];
  return load_vector(Whole(), elements);
}
// Loads one element as a value.
template <class T>
HWY_INLINE auto load_one(const T* from) {
  alignas(64) T elements[kLanes];
  for (T& element : elements) element = *from;
  return load_vector(Whole(), elements);
}

HWY_INLINE void store_vector(Whole, Floats value, float* to) {
  hn::StoreU(value, FloatTag(), to);
}
HWY_INLINE void store_vector(Whole, Floats value, Half* to) {
  simd::store(FloatTag(), value, to);
}
HWY_INLINE void store_vector(Whole, Floats value, BFloat16* to) {
  simd::store(FloatTag(), value, to);
}
HWY_INLINE void store_vector(Whole, Doubles value, double* to) {
  write(value, to);
}
HWY_INLINE void store_vector(Whole, Longs value, int64_t* to) {
  write(value, to);
}
HWY_INLINE void store_vector(Whole, Ints value, int32_t* to) {
  write(value, to);
}
template <class T, class D>
HWY_INLINE void store_low_bits(D d, Ints value, T* to) {
  const auto bits = hn::BitCast(hn::Rebind<uint32_t, FloatTag>(), value);
  const hn::Rebind<T, FloatTag> as_stored;
  hn::StoreU(hn::BitCast(as_stored, hn::TruncateTo(d, bits)), as_stored, to);
}
HWY_INLINE void store_vector(Whole, Ints value, int16_t* to) {
  store_low_bits(hn::Rebind<uint16_t, FloatTag>(), value, to);
}
HWY_INLINE void store_vector(Whole, Ints value, int8_t* to) {
  store_low_bits(hn::Rebind<uint8_t, FloatTag>(), value, to);
}
HWY_INLINE void store_vector(Whole, Ints value, uint8_t* to) {
  store_low_bits(hn::Rebind<uint8_t, FloatTag>(), value, to);
}
HWY_INLINE void store_vector(Whole, Bools value, Bool* to) {
  store_vector(Whole(), hn::Neg(mask_bits(value)), &to->byte);
}
template <class Value, class T>
HWY_INLINE void store_vector(Part part, Value value, T* to) {
  alignas(64) T elements[kLanes];
  store_vector(Whole(), value, elements);
  for (int64_t k = 0; k < part.count; ++k) to[k] = elements[k];
}
#if HWY_TARGET <= HWY_AVX3  // these targets load and store with a mask
HWY_INLINE Floats load_vector(Part part, const float* from) {
  return hn::MaskedLoad(hn::FirstN(FloatTag(), static_cast<size_t>(part.count)), FloatTag(), from);
}
HWY_INLINE void store_vector(Part part, Floats value, float* to) {
  hn::BlendedStore(value, hn::FirstN(FloatTag(), static_cast<size_t>(part.count)), FloatTag(), to);
}
#endif

// Calls body(part, i) for the vectors of elements 0 … n - 1, of which i is the first one.
template <class Body>
HWY_INLINE void for_each_vector(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(Whole(), i);
  if (i < n) body(Part{n - i}, i);
}
// A body is part of the loop.
#define OPDOCK_BODY __attribute__((always_inline))

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_VALUES_HPP_
