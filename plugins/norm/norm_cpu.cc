// Layer and rms norm of rows begin … end-1 on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "norm_cpu.h"
#include "norm_simd.h"

namespace layernorm {
namespace OPDOCK_SIMD_LEVEL {

// Writes (x - mean) * factor * weight + bias.
template <class T>
void write(const T* x, const T* weight, const T* bias, T* out, int64_t n, const RowMoments& of,
           double eps) {
  using C = typename simd::Compute<T>::type;
  const Scale<C> scale(of, eps);
  simd::for_row<C>(n, [&](auto vector, auto, int64_t i) HWY_ATTR {
    auto y = scale.normalise(typename decltype(vector)::D(), vector.load(x + i));
    if (weight) y = hn::Mul(y, vector.load(weight + i));
    if (bias) y = hn::Add(y, vector.load(bias + i));
    vector.store(y, out + i);
  });
}

template <class T>
void rows(const Job& job, int64_t begin, int64_t end) {
  const Params& p = job.params;
  for (int64_t r = begin; r < end; ++r) {
    long long offset[4];
    p.rows.locate(r, offset);
    const T* residual = static_cast<const T*>(p.residual);
    T* sum = static_cast<T*>(p.sum);
    const Source<T> source = {static_cast<const T*>(p.x) + offset[0],
                              residual ? residual + offset[1] : nullptr,
                              static_cast<const T*>(p.input_bias), sum ? sum + offset[3] : nullptr};
    const RowMoments of = row_moments(source, p.length, p.centred);
    write(source.result(), static_cast<const T*>(p.weight), static_cast<const T*>(p.bias),
          static_cast<T*>(p.out) + offset[2], p.length, of, job.eps);
  }
}

void run(const Job& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) { rows<decltype(zero)>(job, begin, end); });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace layernorm
