// Conversions between kinds of values, and between values and elements in memory.
// SPDX-License-Identifier: Apache-2.0
#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

using simd::BFloat16;
using simd::Half;

using scalar::to_integer;

template <class T>
void load_integers(void* to, const void* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(to)[i] = static_cast<const T*>(from)[i];
}
template <class T>
void store_integers(void* to, const void* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<T*>(to)[i] = static_cast<T>(static_cast<const int64_t*>(from)[i]);
}
void load_bools(void* to, const void* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<int32_t*>(to)[i] = -int32_t(static_cast<const uint8_t*>(from)[i] != 0);
}
void store_bools(void* to, const void* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<uint8_t*>(to)[i] = static_cast<const int32_t*>(from)[i] != 0;
}

// T: float, double, Half or BFloat16, held as C.
template <class T, class C>
void load_floats(void* to, const void* from, int64_t n) {
  const T* const elements = static_cast<const T*>(from);
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(simd::load(d, elements + i), d, static_cast<C*>(to) + i);
  });
}
template <class T, class C>
void store_floats(void* to, const void* from, int64_t n) {
  T* const elements = static_cast<T*>(to);
  simd::for_each_vector<C>(n, [&](auto d, int64_t i) HWY_ATTR {
    simd::store(d, hn::LoadU(d, static_cast<const C*>(from) + i), elements + i);
  });
}
template <class T>
void round(void* out, const Source* args, int64_t n) {
  Reader<float> a(args[0], kStride);
  float* to = static_cast<float*>(out);
  T rounded[kStride];
  for (int64_t i = 0; i < n; i += kStride, a.next(), to += kStride) {
    store_floats<T, float>(rounded, a.at, kStride);
    load_floats<T, float>(to, rounded, kStride);
  }
}

template <class T>
void wrap(void* out, const Source* args, int64_t n) {
  each1<int64_t, int64_t,
        decltype([](int64_t a) { return static_cast<int64_t>(static_cast<T>(a)); })>(out, args, n);
}

}  // namespace

void add_conversions(Kernels* kernels) {
  // In the order of Type: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32,
  // float64.
  const Convert load[] = {load_bools,
                          load_integers<uint8_t>,
                          load_integers<int8_t>,
                          load_integers<int16_t>,
                          load_integers<int32_t>,
                          load_integers<int64_t>,
                          load_floats<Half, float>,
                          load_floats<BFloat16, float>,
                          load_floats<float, float>,
                          load_floats<double, double>};
  const Convert store[] = {store_bools,
                           store_integers<uint8_t>,
                           store_integers<int8_t>,
                           store_integers<int16_t>,
                           store_integers<int32_t>,
                           store_integers<int64_t>,
                           store_floats<Half, float>,
                           store_floats<BFloat16, float>,
                           store_floats<float, float>,
                           store_floats<double, double>};
  for (int i = 0; i < 10; ++i) {
    kernels->load[i] = load[i];
    kernels->store[i] = store[i];
  }
  kernels->wrap[1] = wrap<uint8_t>;
  kernels->wrap[2] = wrap<int8_t>;
  kernels->wrap[3] = wrap<int16_t>;
  kernels->wrap[4] = wrap<int32_t>;
  kernels->round[6] = formula::OPDOCK_SIMD_LEVEL::round<Half>;
  kernels->round[7] = formula::OPDOCK_SIMD_LEVEL::round<BFloat16>;

  const auto set = [&](CpuKind from, CpuKind to, Kernel kernel) {
    kernels->convert[static_cast<int>(from)][static_cast<int>(to)] = kernel;
  };
  constexpr CpuKind F = CpuKind::kFloat, D = CpuKind::kDouble, I = CpuKind::kInteger,
                    B = CpuKind::kBool;
  set(F, D, each1<double, float, decltype([](float a) { return double(a); })>);
  set(F, I, each1<int64_t, float, decltype([](float a) { return to_integer(a); })>);
  set(F, B, each1<int32_t, float, decltype([](float a) { return -int32_t(a != 0); })>);
  set(D, F, each1<float, double, decltype([](double a) { return float(a); })>);
  set(D, I, each1<int64_t, double, decltype([](double a) { return to_integer(a); })>);
  set(D, B, each1<int32_t, double, decltype([](double a) { return -int32_t(a != 0); })>);
  set(I, F, each1<float, int64_t, decltype([](int64_t a) { return float(a); })>);
  set(I, D, each1<double, int64_t, decltype([](int64_t a) { return double(a); })>);
  set(I, B, each1<int32_t, int64_t, decltype([](int64_t a) { return -int32_t(a != 0); })>);
  set(B, F, each1<float, int32_t, decltype([](int32_t a) { return float(-a); })>);
  set(B, D, each1<double, int32_t, decltype([](int32_t a) { return double(-a); })>);
  set(B, I, each1<int64_t, int32_t, decltype([](int32_t a) { return int64_t(-a); })>);
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
