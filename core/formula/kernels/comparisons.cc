// Comparisons, tests and choices of floats and doubles, and what takes bools.
// SPDX-License-Identifier: Apache-2.0
#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

using MaskTag = hn::Rebind<int32_t, FloatTag>;

// Stores a mask of floats or doubles as bools, and loads it.
template <class M>
HWY_INLINE void store_mask(FloatTag, M mask, int32_t* to) {
  hn::StoreU(hn::BitCast(MaskTag(), hn::VecFromMask(FloatTag(), mask)), MaskTag(), to);
}
template <class M>
HWY_INLINE void store_mask(DoubleTag d, M mask, int32_t* to) {
  const hn::Rebind<uint64_t, DoubleTag> wide;
  const hn::Rebind<uint32_t, DoubleTag> narrow;
  const hn::Rebind<int32_t, DoubleTag> narrow_signed;
  const auto bits = hn::TruncateTo(narrow, hn::BitCast(wide, hn::VecFromMask(d, mask)));
  hn::StoreU(hn::BitCast(narrow_signed, bits), narrow_signed, to);
}
HWY_INLINE auto load_mask(FloatTag d, const int32_t* from) {
  return hn::MaskFromVec(hn::BitCast(d, hn::LoadU(MaskTag(), from)));
}
HWY_INLINE auto load_mask(DoubleTag d, const int32_t* from) {
  const hn::Rebind<int64_t, DoubleTag> wide;
  const hn::Rebind<int32_t, DoubleTag> narrow;
  return hn::MaskFromVec(hn::BitCast(d, hn::PromoteTo(wide, hn::LoadU(narrow, from))));
}

template <class T, class F>
void test(void* out, const Source* args, int64_t n) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<T> a(args[0], lanes);
  int32_t* const to = static_cast<int32_t*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next())
    store_mask(d, F()(d, hn::LoadU(d, a.at)), to + i);
}
template <class T, class F>
void compare(void* out, const Source* args, int64_t n) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<T> a(args[0], lanes), b(args[1], lanes);
  int32_t* const to = static_cast<int32_t*>(out);
  for (int64_t i = 0; i < n; i += lanes, a.next(), b.next())
    store_mask(d, F()(hn::LoadU(d, a.at), hn::LoadU(d, b.at)), to + i);
}
template <class T>
void where(void* out, const Source* args, int64_t n) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Reader<int32_t> mask(args[0], lanes);
  Reader<T> a(args[1], lanes), b(args[2], lanes);
  T* const to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; i += lanes, mask.next(), a.next(), b.next())
    hn::StoreU(hn::IfThenElse(load_mask(d, mask.at), hn::LoadU(d, a.at), hn::LoadU(d, b.at)), d,
               to + i);
}

template <class T>
constexpr T kInfinity = static_cast<T>(HUGE_VAL);

template <class T>
void add_comparisons_of(Kernels* kernels, CpuKind kind) {
  const auto set = [&](Code code, Kernel kernel) { entry(kernels, code, kind) = kernel; };
  set(Code::kEqual, compare<T, decltype([](auto a, auto b) { return hn::Eq(a, b); })>);
  set(Code::kNotEqual, compare<T, decltype([](auto a, auto b) { return hn::Not(hn::Eq(a, b)); })>);
  set(Code::kLess, compare<T, decltype([](auto a, auto b) { return hn::Lt(a, b); })>);
  set(Code::kLessEqual, compare<T, decltype([](auto a, auto b) { return hn::Le(a, b); })>);
  set(Code::kGreater, compare<T, decltype([](auto a, auto b) { return hn::Gt(a, b); })>);
  set(Code::kGreaterEqual, compare<T, decltype([](auto a, auto b) { return hn::Ge(a, b); })>);
  set(Code::kIsnan, test<T, decltype([](auto, auto a) { return is_nan(a); })>);
  set(Code::kIsinf, test<T, decltype([](auto d, auto a) {
                           return hn::Eq(hn::Abs(a), hn::Set(d, kInfinity<T>));
                         })>);
  set(Code::kIsfinite, test<T, decltype([](auto d, auto a) {
                              return hn::Lt(hn::Abs(a), hn::Set(d, kInfinity<T>));
                            })>);
  set(Code::kSignbit, test<T, decltype([](auto d, auto a) {
                             return hn::Lt(hn::CopySign(hn::Set(d, T(1)), a), hn::Zero(d));
                           })>);
  set(Code::kWhere, where<T>);
}

}  // namespace

void add_comparisons(Kernels* kernels) {
  add_comparisons_of<float>(kernels, CpuKind::kFloat);
  add_comparisons_of<double>(kernels, CpuKind::kDouble);
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
