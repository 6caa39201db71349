// opdock/simd_columns.hpp: for CPU kernels in a plugin's simd_sources that sum over rows, column by
// column, in chunks of rows (opdock/columns.cuh).
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_SIMD_COLUMNS_HPP_
#define OPDOCK_SIMD_COLUMNS_HPP_

#include <opdock/columns.cuh>

#include "opdock/simd.hpp"

namespace opdock {
namespace simd {
namespace OPDOCK_SIMD_LEVEL {

// Writes columns begin … end - 1 of `out`, the totals of the chunks' sums. partial: `chunks` times
// `columns` numbers of the type that T is computed in; it and `out` begin at column 0.
template <class T>
void column_totals(const void* partial, int64_t chunks, int64_t columns, T* out, int64_t begin,
                   int64_t end) {
  using C = typename Compute<T>::type;
  for_each_vector<C>(end - begin, [&](auto d, int64_t i) HWY_ATTR {
    // Kahan's compensated summation: `lost` is what rounding has added to the total.
    auto total = hn::Zero(d), lost = hn::Zero(d);
    const C* from = static_cast<const C*>(partial) + begin + i;
    for (int64_t chunk = 0; chunk < chunks; ++chunk, from += columns) {
      const auto term = hn::Sub(hn::LoadU(d, from), lost);
      const auto sum = hn::Add(total, term);
      lost = hn::Sub(hn::Sub(sum, total), term);
      total = sum;
    }
    OPDOCK_SIMD_LEVEL::store(d, total, out + begin + i);
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace simd
}  // namespace opdock
#endif  // OPDOCK_SIMD_COLUMNS_HPP_
