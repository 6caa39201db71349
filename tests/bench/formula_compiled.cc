// SPDX-License-Identifier: Apache-2.0
#include "formula_compiled.h"

#include <vector>

#include "formula/kernels/loops.h"

namespace compiled {
namespace {

using namespace opdock::formula::OPDOCK_SIMD_LEVEL;
constexpr FloatTag d;
const int64_t kLanes = static_cast<int64_t>(hn::Lanes(d));

// Calls body(i) for the vectors of n elements, a multiple of a vector's; four at a time, so that
// they do not wait for one another.
template <class Body>
HWY_INLINE void each(int64_t n, const Body& body) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; i += kLanes) body(i);
}
HWY_INLINE auto set(float value) {
  return hn::Set(d, value);
}

}  // namespace

void polynomial(const float* x, float* y, int64_t n) {
  each(n, [&](int64_t i) HWY_ATTR {
    const auto at = hn::LoadU(d, x + i);
    auto value = set(0.1f);
#pragma GCC unroll 10
    for (int k = 1; k <= 10; ++k) value = hn::MulAdd(value, at, set(0.1f + static_cast<float>(k)));
    hn::StoreU(value, d, y + i);
  });
}
void silu(const float* x, const float* gate, const float* residual, float* y, int64_t n) {
  each(n, [&](int64_t i) HWY_ATTR {
    const auto value = hn::Mul(opdock::formula::OPDOCK_SIMD_LEVEL::Silu()(d, hn::LoadU(d, x + i)),
                               hn::LoadU(d, gate + i));
    hn::StoreU(hn::Add(value, hn::LoadU(d, residual + i)), d, y + i);
  });
}
void gelu(const float* x, const float* scale, const float* residual, float* y, int64_t n) {
  const int64_t lanes = kLanes / 2;
  for (int64_t i = 0; i < n; i += lanes) {
    const NarrowTag narrow;
    const auto in = hn::Mul(hn::LoadU(narrow, x + i), hn::Set(narrow, 0.5f));
    const auto value =
        hn::DemoteTo(narrow, wide_gelu_tanh(DoubleTag(), hn::PromoteTo(DoubleTag(), in)));
    const auto scaled = hn::Mul(value, hn::LoadU(narrow, scale + i));
    hn::StoreU(hn::Add(scaled, hn::LoadU(narrow, residual + i)), narrow, y + i);
  }
}
void exponentials(const float* x, float* y, int64_t n) {
  each(n, [&](int64_t i) HWY_ATTR {
    auto value = hn::Add(hn::Mul(hn::LoadU(d, x + i), set(0.5f)), set(0.1f));
    value = hn::Mul(exp(d, value), set(-0.3f));
    value = Reciprocal()(d, hn::Add(exp(d, value), set(1.0f)));
    value = hn::Sub(hn::Mul(value, set(2.0f)), set(1.0f));
    hn::StoreU(exp(d, value), d, y + i);
  });
}
void arithmetic(const float* x, const float* z, float* y, int64_t n) {
  each(n, [&](int64_t i) HWY_ATTR {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, z + i);
    auto value = hn::Add(hn::Mul(a, set(0.5f)), b);
    value = hn::Mul(hn::Sub(value, set(0.25f)), a);
    value = Maximum()(d, hn::Add(value, set(1.5f)), b);
    value = hn::Add(hn::Mul(value, b), a);
    hn::StoreU(hn::Mul(hn::Sub(value, set(2.0f)), set(0.125f)), d, y + i);
  });
}
void softmax(const float* x, float* y, int64_t rows, int64_t columns) {
  std::vector<float> powers(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    auto m0 = set(-HUGE_VALF), m1 = m0;
    for (int64_t i = 0; i < columns; i += 2 * kLanes) {
      m0 = Maximum()(d, m0, hn::LoadU(d, x + i));
      m1 = Maximum()(d, m1, hn::LoadU(d, x + i + kLanes));
    }
    const auto most = hn::MaxOfLanes(d, Maximum()(d, m0, m1));
    auto s0 = hn::Zero(d), s1 = s0;
    for (int64_t i = 0; i < columns; i += 2 * kLanes) {
      const auto e0 = exp(d, hn::Sub(hn::LoadU(d, x + i), most));
      const auto e1 = exp(d, hn::Sub(hn::LoadU(d, x + i + kLanes), most));
      hn::StoreU(e0, d, powers.data() + i);
      hn::StoreU(e1, d, powers.data() + i + kLanes);
      s0 = hn::Add(s0, e0);
      s1 = hn::Add(s1, e1);
    }
    const auto sum = hn::SumOfLanes(d, hn::Add(s0, s1));
    each(columns, [&](int64_t i) HWY_ATTR {
      hn::StoreU(hn::Div(hn::LoadU(d, powers.data() + i), sum), d, y + i);
    });
  }
}

}  // namespace compiled
