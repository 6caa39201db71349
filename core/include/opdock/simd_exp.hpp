// opdock/simd_exp.hpp: e^v of vectors, for CPU kernels in a plugin's simd_sources.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_SIMD_EXP_HPP_
#define OPDOCK_SIMD_EXP_HPP_

#include "opdock/simd.hpp"

namespace opdock {
namespace simd {
namespace OPDOCK_SIMD_LEVEL {

// exp_times() returns e^v times this power of two, so that a result below the smallest normal
// number keeps its digits, and is rounded only once, when the factor is divided out.
template <class C>
inline constexpr C kExpFactor = static_cast<C>(sizeof(C) == 4 ? 0x1p64 : 1.0);

// Returns the larger of v and low; NaN where v is NaN.
template <class D, class V>
HWY_INLINE V at_least(D d, hn::TFromD<D> low, V v) {
  const auto limit = hn::Set(d, low);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(limit, v);  // x86 returns the second operand if one is NaN
#else
  return hn::IfThenElse(hn::Lt(v, limit), limit, v);
#endif
}

// Returns e^v * kExpFactor for v of at most about 0; NaN for NaN, which Highway's Exp turns into 0.
//
// For floats, v below -104 counts as -104, whose e^v rounds to 0. Otherwise v is k log(2) + r, and
// e^r is approximated by the polynomial of degree 6 with the smallest error over |r| <= log(2)/2,
// which is 4e-9. Together the relative error is below 1e-7 + 2e-9 |k|.
template <class D>
HWY_INLINE hn::VFromD<D> exp_times(D d, hn::VFromD<D> v) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::IfThenElse(hn::Eq(v, v), hn::Exp(d, v), v);
  } else {
    const hn::Rebind<uint32_t, D> du;
    v = at_least(d, -104.0f, v);
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits: k plus the exponents
    // of the factor (64) and of 1 (127).
    const auto shift = hn::Set(d, 12582912.0f + 64 + 127);
    const auto shifted = hn::MulAdd(v, hn::Set(d, 1.44269504f), shift);
    const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
    const auto k = hn::Sub(shifted, shift);
#if HWY_NATIVE_FMA
    const auto r = hn::NegMulAdd(k, hn::Set(d, 0.693147181f), v);
#else  // k * log(2) would be rounded, so log(2) is split in two parts, the first with 15 bits
    const auto high = hn::NegMulAdd(k, hn::Set(d, 0x1.62e4p-1f), v);
    const auto r = hn::NegMulAdd(k, hn::Set(d, 0x1.7f7d1cp-20f), high);
#endif
    auto e = hn::MulAdd(r, hn::Set(d, 0x1.6a23dp-10f), hn::Set(d, 0x1.123a2p-7f));
    e = hn::MulAdd(e, r, hn::Set(d, 0x1.5558f2p-5f));
    e = hn::MulAdd(e, r, hn::Set(d, 0x1.555492p-3f));
    e = hn::MulAdd(e, r, hn::Set(d, 0x1.fffffcp-2f));
    e = hn::MulAdd(e, r, hn::Set(d, 1.0f));
    e = hn::MulAdd(e, r, hn::Set(d, 1.0f));
    return hn::Mul(e, power);
  }
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace simd
}  // namespace opdock
#endif  // OPDOCK_SIMD_EXP_HPP_
