// Chains of float operations, in which the values stay in vector registers, and the table of all
// kernels of this instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

using V = hn::VFromD<FloatTag>;
// An operation on this many vectors need not wait for the one before it, and a link is looked at
// once for all of them. They take half of the registers.
constexpr int kVectors = HWY_TARGET <= HWY_AVX3 ? 16 : 8;

// Runs the links on N vectors, those of elements `begin` and later ones.
template <int N>
HWY_INLINE void run(const Link* links, size_t count, int64_t begin) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V v[N];
  const auto each = [&](const auto& function) HWY_ATTR {
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) v[k] = function(v[k], k);
  };
  each([&](V, int) HWY_ATTR { return hn::Zero(d); });
  for (const Link* link = links; link != links + count; ++link) {
    const float* const from[] = {static_cast<const float*>(link->data[0]),
                                 static_cast<const float*>(link->data[1])};
    const auto load = [&](int arg, int k)
                          HWY_ATTR { return hn::LoadU(d, from[arg] + begin + k * lanes); };
    const auto load_uniform = [&](int arg) HWY_ATTR { return hn::LoadU(d, from[arg]); };
    // x: the value; y, z: the arguments, which are loaded once for all vectors if they are the same
    // in the whole row.
#define OPDOCK_VALUE(op, expression)                     \
  case 4 * static_cast<int>(Link::Op::op):               \
    each([&](V x, int) HWY_ATTR { return expression; }); \
    break;
#define OPDOCK_BINARY(op, expression)                                     \
  case 4 * static_cast<int>(Link::Op::op):                                \
    each([&]([[maybe_unused]] V x, int k) HWY_ATTR {                      \
      const V y = load(0, k);                                             \
      return expression;                                                  \
    });                                                                   \
    break;                                                                \
  case 4 * static_cast<int>(Link::Op::op) + 1: {                          \
    const V y = load_uniform(0);                                          \
    each([&]([[maybe_unused]] V x, int) HWY_ATTR { return expression; }); \
    break;                                                                \
  }
#define OPDOCK_TERNARY(op, expression)                   \
  case 4 * static_cast<int>(Link::Op::op):               \
    each([&](V x, int k) HWY_ATTR {                      \
      const V y = load(0, k), z = load(1, k);            \
      return expression;                                 \
    });                                                  \
    break;                                               \
  case 4 * static_cast<int>(Link::Op::op) + 1: {         \
    const V y = load_uniform(0);                         \
    each([&](V x, int k) HWY_ATTR {                      \
      const V z = load(1, k);                            \
      return expression;                                 \
    });                                                  \
    break;                                               \
  }                                                      \
  case 4 * static_cast<int>(Link::Op::op) + 2: {         \
    const V z = load_uniform(1);                         \
    each([&](V x, int k) HWY_ATTR {                      \
      const V y = load(0, k);                            \
      return expression;                                 \
    });                                                  \
    break;                                               \
  }                                                      \
  case 4 * static_cast<int>(Link::Op::op) + 3: {         \
    const V y = load_uniform(0), z = load_uniform(1);    \
    each([&](V x, int) HWY_ATTR { return expression; }); \
    break;                                               \
  }
    switch (4 * static_cast<int>(link->op) + link->is_uniform[0] + 2 * link->is_uniform[1]) {
      case 4 * static_cast<int>(Link::Op::kStore):
        each([&](V x, int k) HWY_ATTR {
          hn::StoreU(x, d, static_cast<float*>(link->out) + begin + k * lanes);
          return x;
        });
        break;
      case 4 * static_cast<int>(Link::Op::kCall): {
        alignas(64) float values[kStride * N];
        if (lanes * N < kStride)
          for (float& value : values) value = 0;
        each([&](V x, int k) HWY_ATTR {
          hn::Store(x, d, values + k * lanes);
          return x;
        });
        const Source source = {values, false};
        link->kernel(values, &source, (lanes * N + kStride - 1) / kStride * kStride);
        each([&](V, int k) HWY_ATTR { return hn::Load(d, values + k * lanes); });
        break;
      }
        OPDOCK_BINARY(kLoad, y)
        OPDOCK_VALUE(kNegative, hn::Neg(x))
        OPDOCK_VALUE(kAbs, hn::Abs(x))
        OPDOCK_VALUE(kRelu, Relu()(d, x))
        OPDOCK_VALUE(kSqrt, hn::Sqrt(x))
        OPDOCK_VALUE(kReciprocal, Reciprocal()(d, x))
        OPDOCK_VALUE(kExp, exp(d, x))
        OPDOCK_VALUE(kSquare, hn::Mul(x, x))
        OPDOCK_BINARY(kAdd, hn::Add(x, y))
        OPDOCK_BINARY(kSub, hn::Sub(x, y))
        OPDOCK_BINARY(kSubFrom, hn::Sub(y, x))
        OPDOCK_BINARY(kMul, hn::Mul(x, y))
        OPDOCK_BINARY(kDiv, hn::Div(x, y))
        OPDOCK_BINARY(kDivFrom, hn::Div(y, x))
        OPDOCK_BINARY(kMaximum, Maximum()(d, x, y))
        OPDOCK_BINARY(kMinimum, Minimum()(d, x, y))
        OPDOCK_TERNARY(kFma, hn::MulAdd(x, y, z))
        OPDOCK_TERNARY(kFmaAddend, hn::MulAdd(y, z, x))
    }
#undef OPDOCK_VALUE
#undef OPDOCK_BINARY
#undef OPDOCK_TERNARY
  }
}

void chain(const Link* links, size_t count, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  int64_t i = 0;
  for (; i + kVectors * lanes <= n; i += kVectors * lanes) run<kVectors>(links, count, i);
  for (; i < n; i += lanes) run<1>(links, count, i);
}

}  // namespace

void add_chain(Kernels* kernels) {
  kernels->chain = chain;
  kernels->chain_rounds_fma = HWY_NATIVE_FMA;
}

const Kernels& kernels() {
  static const Kernels& table = *[] {
    auto* const all = new Kernels();
    add_arithmetic(all);
    add_comparisons(all);
    add_functions(all);
    add_scalar_functions(all);
    add_integers(all);
    add_conversions(all);
    add_reductions(all);
    add_chain(all);
    return all;
  }();
  return table;
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
