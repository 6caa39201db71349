// Loops over blocks, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formula/kernels/kernels.h"
#include "opdock/formula_activations.hpp"

// The iterations of the loop that follows do not depend on each other: what it writes is not what
// it reads, except at the same index. Clang warns of each such loop that it does not vectorize.
#if defined(__clang__)
#define OPDOCK_INDEPENDENT
#else
#define OPDOCK_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace opdock::formula::OPDOCK_SIMD_LEVEL {

static_assert(kStride == int64_t{kMaxFloats}, "blocks have whole vectors");

// Iterates over an argument.
template <class T>
struct Reader {
  Reader(const Source& source, int64_t count)
      : at(static_cast<const T*>(source.data)), step(source.is_uniform ? 0 : count) {}
  HWY_INLINE void next() { at += step; }
  const T* at;
  int64_t step;
};

// Kernels over vectors of T. F: a functor of a tag and vectors.
template <class T, class F>
void unary(void* out, const Source* args, int64_t n) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<T> a(args[0], lanes);
  T* const to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next())
    hn::StoreU(F()(d, hn::LoadU(d, a.at)), d, to + i);
}
template <class T, class F>
void binary(void* out, const Source* args, int64_t n) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<T> a(args[0], lanes), b(args[1], lanes);
  T* const to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next(), b.next())
    hn::StoreU(F()(d, hn::LoadU(d, a.at), hn::LoadU(d, b.at)), d, to + i);
}
template <class T, class F>
void ternary(void* out, const Source* args, int64_t n) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<T> a(args[0], lanes), b(args[1], lanes), c(args[2], lanes);
  T* const to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next(), b.next(), c.next())
    hn::StoreU(F()(d, hn::LoadU(d, a.at), hn::LoadU(d, b.at), hn::LoadU(d, c.at)), d, to + i);
}

// Kernels of floats that are computed in double.
template <class F>
void wide_unary(void* out, const Source* args, int64_t n) {
  const DoubleTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<float> a(args[0], lanes);
  float* const to = static_cast<float*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next()) store_wide(F()(d, load_wide(a.at)), to + i);
}
template <class F>
void wide_binary(void* out, const Source* args, int64_t n) {
  const DoubleTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<float> a(args[0], lanes), b(args[1], lanes);
  float* const to = static_cast<float*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next(), b.next())
    store_wide(F()(d, load_wide(a.at), load_wide(b.at)), to + i);
}

// Kernels over single values of any types, which the compiler turns into vectors where it can. The
// inner loop has a constant length for that.
template <class Out, class A, class F>
void each1(void* out, const Source* args, int64_t n) {
  Reader<A> a(args[0], kStride);
  Out* to = static_cast<Out*>(out);
  for (int64_t i = 0; i < n; i += kStride, a.next(), to += kStride) {
    OPDOCK_INDEPENDENT
    for (int64_t k = 0; k < kStride; ++k) to[k] = F()(a.at[k]);
  }
}
template <class Out, class A, class F>
void each2(void* out, const Source* args, int64_t n) {
  Reader<A> a(args[0], kStride), b(args[1], kStride);
  Out* to = static_cast<Out*>(out);
  for (int64_t i = 0; i < n; i += kStride, a.next(), b.next(), to += kStride) {
    OPDOCK_INDEPENDENT
    for (int64_t k = 0; k < kStride; ++k) to[k] = F()(a.at[k], b.at[k]);
  }
}
template <class T, class F>
void each3(void* out, const Source* args, int64_t n) {
  Reader<T> a(args[0], kStride), b(args[1], kStride), c(args[2], kStride);
  T* to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; i += kStride, a.next(), b.next(), c.next(), to += kStride)
    for (int64_t k = 0; k < kStride; ++k) to[k] = F()(a.at[k], b.at[k], c.at[k]);
}

// The tables of the files of this folder.
void add_arithmetic(Kernels* kernels);
void add_comparisons(Kernels* kernels);
void add_functions(Kernels* kernels);
void add_scalar_functions(Kernels* kernels);
void add_integers(Kernels* kernels);
void add_conversions(Kernels* kernels);
void add_reductions(Kernels* kernels);
void add_chain(Kernels* kernels);

// Sets the kernels of an operation.
inline Kernel& entry(Kernels* kernels, Code code, CpuKind kind) {
  return kernels->operations[static_cast<int>(code)][static_cast<int>(kind)];
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
