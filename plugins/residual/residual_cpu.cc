// Computes pieces begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "opdock/simd_elements.hpp"
#include "residual_cpu.h"

namespace residual {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

// A variant that a kernel is compiled for, so that no loop tests for absent tensors.
template <Kind K, int Biases>
struct Form {
  static constexpr Kind kKind = K;
  static constexpr int kBiases = Biases;
};

template <class F, class T, class C>
HWY_INLINE void combine_row(const simd::ElementRow<T, kPlaces>& row, int64_t n, C factor) {
  constexpr bool kHasAttention = F::kKind == kInside || F::kKind == kOutside;
  T* const out = row[kOut];
  const T *const hidden = row[kHidden], *const residual = row[kResidual];
  const T* const attention = kHasAttention ? row[kAttention] : nullptr;
  const T* const bias = F::kBiases > 0 ? row[kBias] : nullptr;
  const T* const other = F::kBiases > 1 ? row[kOtherBias] : nullptr;
  simd::for_row<C, 1>(n, [=](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    auto whole = vector.load(hidden + i), sum = vector.load(residual + i);
    if constexpr (F::kKind == kWeighted) {
      sum = hn::Mul(sum, vector.load(other + i));
      vector.store(hn::MulAdd(whole, vector.load(bias + i), sum), out + i);
    } else {
      if constexpr (F::kKind == kInside) sum = hn::Add(sum, vector.load(attention + i));
      if constexpr (F::kKind == kOutside) whole = hn::Add(whole, vector.load(attention + i));
      if constexpr (F::kBiases > 0) sum = hn::Add(sum, vector.load(bias + i));
      if constexpr (F::kBiases > 1) sum = hn::Add(sum, vector.load(other + i));
      vector.store(hn::MulAdd(sum, hn::Set(d, factor), whole), out + i);
    }
  });
}

template <class F>
void combine_of(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename simd::Compute<T>::type;
    const C factor = static_cast<C>(job.factor);
    simd::for_each_piece<T>(job.params.at, job.pieces, begin, end,
                            [&](const auto& row, int64_t n)
                                HWY_ATTR { combine_row<F, T>(row, n, factor); });
  });
}

template <Kind K>
void combine_biased(const Job& job, int64_t begin, int64_t end) {
  if (job.params.at.data[kOtherBias]) return combine_of<Form<K, 2>>(job, begin, end);
  if (job.params.at.data[kBias]) return combine_of<Form<K, 1>>(job, begin, end);
  combine_of<Form<K, 0>>(job, begin, end);
}

void combine(const Job& job, int64_t begin, int64_t end) {
  const int kind = job.params.kind;
  if (kind == kWeighted) return combine_of<Form<kWeighted, 2>>(job, begin, end);
  if (kind == kInside) return combine_biased<kInside>(job, begin, end);
  if (kind == kOutside) return combine_biased<kOutside>(job, begin, end);
  combine_biased<kPlain>(job, begin, end);
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace residual
