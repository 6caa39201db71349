// The elementwise steps between products on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "activation_simd.h"
#include "elements_cpu.h"
#include "opdock/simd_elements.hpp"

namespace linear {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;
namespace act = activation::OPDOCK_SIMD_LEVEL;

template <class Body>
void dispatch(opdock_dtype dtype, const Body& body) {
  simd::dispatch(dtype, [&](auto zero) {
    if constexpr (sizeof(zero) <= sizeof(float)) body(zero);
  });
}

template <int Act, class T>
void gate_pieces(const ElementJob& job, int64_t begin, int64_t end) {
  simd::for_each_piece<T>(job.params.at, job.pieces, begin, end,
                          [](const auto& row, int64_t n) HWY_ATTR {
                            T* const out = row[kResult];
                            const T *const first = row[kFirst], *const second = row[kSecond];
                            simd::for_row<float, 1>(n, [=](auto vector, auto, int64_t i) HWY_ATTR {
                              const typename decltype(vector)::D d;
                              const auto gated = act::activate<T, Act>(d, vector.load(second + i));
                              vector.store(hn::Mul(vector.load(first + i), gated), out + i);
                            });
                          });
}

void gate(const ElementJob& job, int64_t begin, int64_t end) {
  dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (job.params.act) {
      case activation::kRelu:
        return gate_pieces<activation::kRelu, T>(job, begin, end);
      case activation::kGeluTanh:
        return gate_pieces<activation::kGeluTanh, T>(job, begin, end);
      case activation::kGeluErf:
        return gate_pieces<activation::kGeluErf, T>(job, begin, end);
      default:
        return gate_pieces<activation::kSilu, T>(job, begin, end);
    }
  });
}

template <int Act>
void finish_pieces(const ElementJob& job, int64_t begin, int64_t end) {
  const bool biased = job.params.at.data[kBias], adds = job.params.at.data[kSecond];
  simd::for_each_piece<float>(
      job.params.at, job.pieces, begin, end, [&](const auto& row, int64_t n) HWY_ATTR {
        float* const out = row[kResult];
        const float* const residual = adds ? row[kSecond] : nullptr;
        const float* const bias = biased ? row[kBias] : nullptr;
        simd::for_row<float, 1>(n, [=](auto vector, auto, int64_t i) HWY_ATTR {
          const typename decltype(vector)::D d;
          auto value = vector.load(out + i);
          if (bias) value = hn::Add(value, vector.load(bias + i));
          if constexpr (Act != activation::kIdentity) value = act::activate<float, Act>(d, value);
          if (residual) value = hn::Add(value, vector.load(residual + i));
          vector.store(value, out + i);
        });
      });
}

void finish(const ElementJob& job, int64_t begin, int64_t end) {
  switch (job.params.act) {
    case activation::kRelu:
      return finish_pieces<activation::kRelu>(job, begin, end);
    case activation::kGeluTanh:
      return finish_pieces<activation::kGeluTanh>(job, begin, end);
    case activation::kGeluErf:
      return finish_pieces<activation::kGeluErf>(job, begin, end);
    case activation::kSilu:
      return finish_pieces<activation::kSilu>(job, begin, end);
    default:
      return finish_pieces<activation::kIdentity>(job, begin, end);
  }
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace linear
