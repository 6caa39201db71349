// Dequantisation of elements begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "dequantize_cpu.h"

namespace dequantize {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

template <class T>
void of_group(const signed char* q, float scale, T* out, int64_t count) {
  simd::for_each_vector<float>(count, [=](auto d, int64_t i) HWY_ATTR {
    const hn::Rebind<int8_t, decltype(d)> d8;
    const hn::Rebind<int32_t, decltype(d)> d32;
    const auto number = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const int8_t*>(q) + i));
    simd::store(d, hn::Mul(hn::ConvertTo(d, number), hn::Set(d, scale)), out + i);
  });
}

void run(const Job& job, int64_t begin, int64_t end) {
  const Params& p = job.params;
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= sizeof(float)) {
      int64_t group = begin / p.group, ends = (group + 1) * p.group;
      for (int64_t i = begin; i < end; ++group, ends += p.group) {
        const int64_t next = ends < end ? ends : end;
        of_group(p.q + i, p.scale[group], static_cast<T*>(p.out) + i, next - i);
        i = next;
      }
    }
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace dequantize
