// opdock/simd.hpp: for CPU kernels in a plugin's simd_sources: Highway, compiled for one
// instruction set level, and elements of float, half, bfloat16 and double as vectors of float or
// double.
// SPDX-License-Identifier: Apache-2.0
//
// Include it first, and few other headers: the linker merges an inline function with that of
// another level (plugins/meson.build orders the levels so that the merged function runs
// everywhere).
#ifndef OPDOCK_SIMD_HPP_
#define OPDOCK_SIMD_HPP_

#ifndef OPDOCK_SIMD_LEVEL
#error "name this file in simd_sources of the plugin: it is compiled once per OPDOCK_SIMD_LEVEL"
#endif
// The levels of the psABI do not include AES instructions, which Highway otherwise insists on.
#define HWY_DISABLE_PCLMUL_AES
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "opdock/plugin.h"

namespace opdock {
namespace simd {
namespace OPDOCK_SIMD_LEVEL {

namespace hn = hwy::HWY_NAMESPACE;

struct Half {  // IEEE binary16
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// The type in which elements of T are computed.
template <class T>
struct Compute {
  using type = float;
};
template <>
struct Compute<double> {
  using type = double;
};

// Calls body(T{}) with the type T of elements of `dtype`: float, Half, BFloat16 or double. dtype
// must be one of these four.
template <class Body>
void dispatch(opdock_dtype dtype, const Body& body) {
  if (dtype.code == OPDOCK_DTYPE_BFLOAT) return body(BFloat16{});
  if (dtype.bits == 16) return body(Half{});
  if (dtype.bits == 64) return body(double{});
  body(float{});
}

// FullTag is a tag of full vectors, OneTag one of single elements for the rest of a row: one
// function template over the tag serves both.
template <class C>
using FullTag = hn::ScalableTag<C>;
template <class C>
using OneTag = hn::CappedTag<C, 1>;

#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
#define OPDOCK_SIMD_HAS_F16 1
#else
#define OPDOCK_SIMD_HAS_F16 0
#endif

// Converts binary16 bits, which are in the low 16 bits of each lane.
template <class D, class U32>
HWY_INLINE hn::VFromD<D> half_to_float(D d, U32 h) {
  const hn::Rebind<uint32_t, D> du;
  const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7fffu)));
  // Exponent and mantissa are at float's positions, the exponent 112 too low; this also holds for
  // subnormals.
  auto value = hn::BitCast(
      du, hn::Mul(hn::BitCast(d, magnitude), hn::BitCast(d, hn::Set(du, (127u + 112u) << 23))));
  const auto special = hn::Gt(magnitude, hn::Set(du, (0x7c00u << 13) - 1u));
  value = hn::IfThenElse(special, hn::Or(magnitude, hn::Set(du, 0x7f800000u)), value);
  return hn::BitCast(d, hn::Or(value, sign));
}

// Rounds to nearest, ties to even. The result is in the low 16 bits of each lane.
template <class D, class V>
HWY_INLINE hn::VFromD<hn::Rebind<uint32_t, D>> float_to_half(D d, V v) {
  const hn::Rebind<uint32_t, D> du;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  // Normal: drop 13 bits with rounding and lower the exponent by 112; overflow ends in infinity.
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0xfffu)), odd);
  auto out = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, 112u << 23)));
  // Below 2^-14: adding 0.5 rounds to multiples of 2^-24, which is what subnormals count.
  const auto half_one = hn::Set(d, 0.5f);
  const auto counted = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), half_one)),
                               hn::BitCast(du, half_one));
  out = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), counted, out);
  out = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefffu)), hn::Set(du, 0x7c00u), out);
  out = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), hn::Set(du, 0x7e00u), out);
  return hn::Or(out, sign);
}

// load(d, from) reads as many elements as d has lanes, with any alignment, and converts them to d's
// type. store(d, value, to) converts and writes them.
template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const double* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const Half* from) {
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, &from->bits);
#if OPDOCK_SIMD_HAS_F16
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#else
  return half_to_float(d, hn::PromoteTo(hn::Rebind<uint32_t, D>(), bits));
#endif
}
template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const BFloat16* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &from->bits))));
}

template <class D, class V>
HWY_INLINE void store(D d, V value, float* to) {
  hn::StoreU(value, d, to);
}
template <class D, class V>
HWY_INLINE void store(D d, V value, double* to) {
  hn::StoreU(value, d, to);
}

// Keeps the low 16 bits of each lane.
template <class D, class U32>
HWY_INLINE void store_low_half(D, U32 bits, uint16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, bits), d16, to);
}
template <class D, class V>
HWY_INLINE void store(D d, V value, Half* to) {
  (void)d;
#if OPDOCK_SIMD_HAS_F16
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, value)), d16, &to->bits);
#else
  store_low_half(d, float_to_half(d, value), &to->bits);
#endif
}
// Rounds to nearest, ties to even; NaN stays NaN.
template <class D, class V>
HWY_INLINE void store(D d, V value, BFloat16* to) {
  const hn::Rebind<uint32_t, D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  auto out = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
  // Highway 1.0.3's Ne() is false for NaN on AVX2 and AVX-512 (_CMP_NEQ_OQ).
  const auto is_nan = hn::RebindMask(du, hn::Not(hn::Eq(value, value)));
  store_low_half(d, hn::IfThenElse(is_nan, hn::Set(du, 0x7fc0u), out), &to->bits);
}

// Calls body(tag, i) for the whole vectors of [0, n), then for its last elements one by one.
template <class C, class Body>
HWY_INLINE void for_each_vector(int64_t n, const Body& body) {
  const FullTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(d, i);
  for (; i < n; ++i) body(OneTag<C>(), i);
}

// The sum of values that are passed as vectors or one by one. Vectors are added up in blocks,
// single values in double, so that rounding errors do not grow with the row's length.
template <class C>
class Sum {
 public:
  template <class V>
  HWY_INLINE void add(V value) {
    constexpr bool kScalarFloat = HWY_TARGET == HWY_SCALAR && sizeof(C) == 4;
    if constexpr (hwy::IsSame<V, Vector>() && !kScalarFloat) {
      block_ = hn::Add(block_, value);
      if (++in_block_ == 32) {
        vector_ = hn::Add(vector_, block_);
        block_ = hn::Zero(FullTag<C>());
        in_block_ = 0;
      }
    } else {
      single_ += static_cast<double>(hn::GetLane(value));
    }
  }
  HWY_INLINE C total() const {
    const Vector all = hn::SumOfLanes(FullTag<C>(), hn::Add(vector_, block_));
    return static_cast<C>(static_cast<double>(hn::GetLane(all)) + single_);
  }

 private:
  using Vector = hn::VFromD<FullTag<C>>;
  Vector vector_ = hn::Zero(FullTag<C>());
  Vector block_ = hn::Zero(FullTag<C>());
  int in_block_ = 0;
  double single_ = 0;
};

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace simd
}  // namespace opdock
#endif  // OPDOCK_SIMD_HPP_
