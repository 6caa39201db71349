// Operations on integers and bools.
// SPDX-License-Identifier: Apache-2.0
#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

using I = int64_t;
using U = uint64_t;
using scalar::negative;

}  // namespace

void add_integers(Kernels* kernels) {
  const auto set = [&](Code code, Kernel kernel) {
    entry(kernels, code, CpuKind::kInteger) = kernel;
  };
#define OPDOCK_INTEGER(code, expression) \
  set(Code::code, each1<I, I, decltype([](I a) -> I { return expression; })>);
  OPDOCK_INTEGER(kNegative, negative(a))
  OPDOCK_INTEGER(kAbs, a < 0 ? negative(a) : a)
  OPDOCK_INTEGER(kSign, (a > 0) - (a < 0))
  OPDOCK_INTEGER(kRelu, a < 0 ? 0 : a)
  OPDOCK_INTEGER(kBitwiseNot, ~a)
#undef OPDOCK_INTEGER
#define OPDOCK_INTEGER(code, expression) \
  set(Code::code, each2<I, I, decltype([](I a, I b) -> I { return expression; })>);
  OPDOCK_INTEGER(kAdd, static_cast<I>(static_cast<U>(a) + static_cast<U>(b)))
  OPDOCK_INTEGER(kSub, static_cast<I>(static_cast<U>(a) - static_cast<U>(b)))
  OPDOCK_INTEGER(kMul, static_cast<I>(static_cast<U>(a) * static_cast<U>(b)))
  OPDOCK_INTEGER(kFloorDivide, scalar::floor_divide(a, b))
  OPDOCK_INTEGER(kRemainder, scalar::remainder(a, b))
  OPDOCK_INTEGER(kFmod, scalar::rest(a, b))
  OPDOCK_INTEGER(kPow, scalar::power(a, b))
  OPDOCK_INTEGER(kMaximum, a > b ? a : b)
  OPDOCK_INTEGER(kMinimum, a < b ? a : b)
  OPDOCK_INTEGER(kClampMin, a > b ? a : b)
  OPDOCK_INTEGER(kClampMax, a < b ? a : b)
  OPDOCK_INTEGER(kBitwiseAnd, a & b)
  OPDOCK_INTEGER(kBitwiseOr, a | b)
  OPDOCK_INTEGER(kBitwiseXor, a ^ b)
  OPDOCK_INTEGER(kShiftLeft, scalar::shift_left(a, b))
  OPDOCK_INTEGER(kShiftRight, scalar::shift_right(a, b))
#undef OPDOCK_INTEGER
#define OPDOCK_COMPARE(code, op) \
  set(Code::code, each2<int32_t, I, decltype([](I a, I b) { return -int32_t(a op b); })>);
  OPDOCK_COMPARE(kEqual, ==)
  OPDOCK_COMPARE(kNotEqual, !=)
  OPDOCK_COMPARE(kLess, <)
  OPDOCK_COMPARE(kLessEqual, <=)
  OPDOCK_COMPARE(kGreater, >)
  OPDOCK_COMPARE(kGreaterEqual, >=)
#undef OPDOCK_COMPARE
  set(Code::kSignbit, each1<int32_t, I, decltype([](I a) { return -int32_t(a < 0); })>);
  set(Code::kWhere, [](void* out, const Source* args, int64_t n) {
    Reader<int32_t> mask(args[0], kStride);
    Reader<I> a(args[1], kStride), b(args[2], kStride);
    I* to = static_cast<I*>(out);
    for (int64_t i = 0; i < n; i += kStride, mask.next(), a.next(), b.next(), to += kStride) {
      OPDOCK_INDEPENDENT
      for (int64_t k = 0; k < kStride; ++k) to[k] = mask.at[k] != 0 ? a.at[k] : b.at[k];
    }
  });

  // Bools are masks: the smaller of two bools is the larger mask.
  const auto set_bool = [&](Code code, Kernel kernel) {
    entry(kernels, code, CpuKind::kBool) = kernel;
  };
  using B = int32_t;
  const Kernel invert = each1<B, B, decltype([](B a) { return ~a; })>;
  set_bool(Code::kLogicalNot, invert);
  set_bool(Code::kBitwiseNot, invert);
#define OPDOCK_BOOL(code, expression) \
  set_bool(Code::code, each2<B, B, decltype([](B a, B b) -> B { return expression; })>);
  OPDOCK_BOOL(kLogicalAnd, a & b)
  OPDOCK_BOOL(kLogicalOr, a | b)
  OPDOCK_BOOL(kLogicalXor, a ^ b)
  OPDOCK_BOOL(kBitwiseAnd, a & b)
  OPDOCK_BOOL(kBitwiseOr, a | b)
  OPDOCK_BOOL(kBitwiseXor, a ^ b)
  OPDOCK_BOOL(kEqual, ~(a ^ b))
  OPDOCK_BOOL(kNotEqual, a ^ b)
  OPDOCK_BOOL(kLess, ~a & b)
  OPDOCK_BOOL(kLessEqual, ~a | b)
  OPDOCK_BOOL(kGreater, a & ~b)
  OPDOCK_BOOL(kGreaterEqual, a | ~b)
#undef OPDOCK_BOOL
  set_bool(Code::kWhere, each3<B, decltype([](B c, B a, B b) { return (c & a) | (~c & b); })>);
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
