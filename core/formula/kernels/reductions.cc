// Reductions of a row, block by block.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "formula/kernels/loops.h"

namespace opdock::formula::OPDOCK_SIMD_LEVEL {
namespace {

// Sums are kept in four vectors, so that an addition need not wait for the one before it.
// Each adds up only eight numbers; these sums are added in double, so that the error hardly grows
// with the length of the row.
template <class T>
void sum(Total* total, const void* block, int64_t n, int64_t) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* const from = static_cast<const T*>(block);
  double all = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const int64_t end = std::min(n, i + 32 * lanes);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      s0 = hn::Add(s0, hn::LoadU(d, from + i));
      s1 = hn::Add(s1, hn::LoadU(d, from + i + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, from + i + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, from + i + 3 * lanes));
    }
    for (; i + lanes <= end; i += lanes) s0 = hn::Add(s0, hn::LoadU(d, from + i));
    T lane[kStride];
    hn::StoreU(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), d, lane);
    for (int64_t k = 0; k < lanes; ++k) all += static_cast<double>(lane[k]);
  }
  for (; i < n; ++i) all += static_cast<double>(from[i]);
  total->real += all;
}
template <class T>
void product(Total* total, const void* block, int64_t n, int64_t) {
  const T* const from = static_cast<const T*>(block);
  double part[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t k = 0; k < 8; ++k) part[k] *= static_cast<double>(from[i + k]);
  for (; i < n; ++i) part[0] *= static_cast<double>(from[i]);
  for (const double one : part) total->real *= one;
}

// Returns the largest (smallest) value of a block, NaN if there is one.
template <class T, bool Largest>
T extreme(const T* from, int64_t n) {
  const typename TagOf<T>::type d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto better = [](auto a, auto b) HWY_ATTR {
    const auto is_better = Largest ? hn::Gt(b, a) : hn::Lt(b, a);
    return hn::IfThenElse(hn::Or(is_better, is_nan(b)), b, a);
  };
  const auto better_lane = [](T a, T b) { return (Largest ? b > a : b < a) || b != b ? b : a; };
  constexpr T kWorst = static_cast<T>(Largest ? -HUGE_VAL : HUGE_VAL);
  auto m0 = hn::Set(d, kWorst), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = better(m0, hn::LoadU(d, from + i));
    m1 = better(m1, hn::LoadU(d, from + i + lanes));
    m2 = better(m2, hn::LoadU(d, from + i + 2 * lanes));
    m3 = better(m3, hn::LoadU(d, from + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) m0 = better(m0, hn::LoadU(d, from + i));
  T lane[kStride];
  hn::StoreU(better(better(m0, m1), better(m2, m3)), d, lane);
  T best = lane[0];
  for (int64_t k = 1; k < lanes; ++k) best = better_lane(best, lane[k]);
  for (; i < n; ++i) best = better_lane(best, from[i]);
  return best;
}
template <class T, bool Largest>
void best(Total* total, const void* block, int64_t n, int64_t) {
  const auto value = static_cast<double>(extreme<T, Largest>(static_cast<const T*>(block), n));
  const bool is_better = Largest ? value > total->real : value < total->real;
  if (is_better || value != value) total->real = value;
}
template <class T, bool Largest>
void best_index(Total* total, const void* block, int64_t n, int64_t column) {
  const T* const from = static_cast<const T*>(block);
  const T value = extreme<T, Largest>(from, n);
  const auto real = static_cast<double>(value);
  const bool is_better = (Largest ? real > total->real : real < total->real) || real != real;
  // The first column counts even if its value is the worst there is.
  if (total->real != total->real || (!is_better && column > 0)) return;
  total->real = real;
  for (int64_t i = 0; i < n; ++i) {
    if (from[i] != value && !(from[i] != from[i] && value != value)) continue;
    total->index = column + i;
    return;
  }
}

template <class F>
void integers(Total* total, const void* block, int64_t n, int64_t) {
  const int64_t* const from = static_cast<const int64_t*>(block);
  int64_t all = total->integer;
  for (int64_t i = 0; i < n; ++i) all = F()(all, from[i]);
  total->integer = all;
}
template <bool Largest>
void integer_index(Total* total, const void* block, int64_t n, int64_t column) {
  const int64_t* const from = static_cast<const int64_t*>(block);
  for (int64_t i = 0; i < n; ++i) {
    const bool is_better = Largest ? from[i] > total->integer : from[i] < total->integer;
    if (!is_better && column + i > 0) continue;
    total->integer = from[i];
    total->index = column + i;
  }
}
template <class F>
void bools(Total* total, const void* block, int64_t n, int64_t) {
  const int32_t* const from = static_cast<const int32_t*>(block);
  auto all = static_cast<int32_t>(total->integer);
  for (int64_t i = 0; i < n; ++i) all = F()(all, from[i]);
  total->integer = all;
}

template <class T>
void add_reductions_of(Kernels* kernels, int kind) {
  const auto set = [&](Code code, Reduce reduce) {
    kernels->reduce[static_cast<int>(code)][kind] = reduce;
  };
  set(Code::kSum, sum<T>);
  set(Code::kMean, sum<T>);
  set(Code::kProd, product<T>);
  set(Code::kAmax, best<T, true>);
  set(Code::kAmin, best<T, false>);
  set(Code::kArgmax, best_index<T, true>);
  set(Code::kArgmin, best_index<T, false>);
}

}  // namespace

void add_reductions(Kernels* kernels) {
  add_reductions_of<float>(kernels, static_cast<int>(CpuKind::kFloat));
  add_reductions_of<double>(kernels, static_cast<int>(CpuKind::kDouble));
  const auto set = [&](Code code, CpuKind kind, Reduce reduce) {
    kernels->reduce[static_cast<int>(code)][static_cast<int>(kind)] = reduce;
  };
  using I = int64_t;
  using U = uint64_t;
  set(Code::kSum, CpuKind::kInteger, integers<decltype([](I a, I b) {
        return static_cast<I>(static_cast<U>(a) + static_cast<U>(b));
      })>);
  set(Code::kProd, CpuKind::kInteger, integers<decltype([](I a, I b) {
        return static_cast<I>(static_cast<U>(a) * static_cast<U>(b));
      })>);
  set(Code::kAmax, CpuKind::kInteger, integers<decltype([](I a, I b) { return a > b ? a : b; })>);
  set(Code::kAmin, CpuKind::kInteger, integers<decltype([](I a, I b) { return a < b ? a : b; })>);
  set(Code::kArgmax, CpuKind::kInteger, integer_index<true>);
  set(Code::kArgmin, CpuKind::kInteger, integer_index<false>);
  set(Code::kAny, CpuKind::kBool, bools<decltype([](int32_t a, int32_t b) { return a | b; })>);
  set(Code::kAll, CpuKind::kBool, bools<decltype([](int32_t a, int32_t b) { return a & b; })>);
}

}  // namespace opdock::formula::OPDOCK_SIMD_LEVEL
