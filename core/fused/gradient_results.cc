// SPDX-License-Identifier: Apache-2.0
#include "fused/gradient_results.h"

#include <algorithm>

namespace opdock {
namespace {

// Returns the size of dimension `d` of a shape of `rank` dimensions in a tensor that is broadcast
// to it.
int64_t own_size(const formula::Operand& own, size_t d, size_t rank) {
  const size_t missing = rank - static_cast<size_t>(own.rank);
  return d < missing ? 1 : own.shape[d - missing];
}

}  // namespace

ShapedView contiguous_view(const std::vector<int64_t>& shape, void* data) {
  ShapedView view;
  view.data = data;
  view.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    view.shape[d] = shape[d];
    view.strides[d] = stride;
    stride *= shape[d];
  }
  return view;
}

formula::Wanted wanted_of(size_t input, const formula::Operand& own,
                          const std::vector<int64_t>& all) {
  formula::Wanted wanted;
  wanted.input = input;
  if (all.empty()) return wanted;
  const size_t rank = all.size();
  // A tensor without dimensions has one gradient, whatever the shape.
  wanted.over_columns = own.rank == 0 || (own_size(own, rank - 1, rank) == 1 && all.back() != 1);
  wanted.over_rows = own.rank == 0;
  if (own.rank == 0) return wanted;
  bool is_one_row = true;
  for (size_t d = 0; d + 1 < rank; ++d) {
    const int64_t size = own_size(own, d, rank);
    is_one_row = is_one_row && size == 1;
    wanted.is_partial = wanted.is_partial || size != all[d];
  }
  wanted.over_rows = is_one_row && wanted.is_partial;
  if (wanted.over_rows) wanted.is_partial = false;
  return wanted;
}

ShapedView view_of_gradient(const formula::Wanted& wanted, const formula::Operand& own,
                            const std::vector<int64_t>& all) {
  ShapedView view;
  view.data = own.data;
  const size_t rank = all.size(), missing = rank - static_cast<size_t>(own.rank);
  for (size_t d = wanted.over_rows && rank > 0 ? rank - 1 : 0; d < rank; ++d) {
    if (d + 1 == rank && wanted.over_columns) break;
    const int64_t size = own_size(own, d, rank);
    if (wanted.is_partial && size != all[d]) continue;
    view.append(size, size == 1 ? 0 : own.strides[d - missing]);
  }
  return view;
}

ShapedView view_of_incoming(const formula::Input& input, const formula::Operand& own, size_t rank) {
  ShapedView view;
  view.data = own.data;
  for (int d = 0; d < own.rank; ++d) view.append(own.shape[d], own.strides[d]);
  if (input.is_per_row && static_cast<size_t>(own.rank) + 1 == rank) view.append(1, 0);
  return view;
}

std::vector<RowSum> row_sums(const formula::Wanted& wanted, const formula::Operand& own,
                             const std::vector<int64_t>& all) {
  std::vector<RowSum> sums;
  if (!wanted.is_partial) return sums;
  const size_t rank = all.size();
  std::vector<int64_t> shape = all;
  if (wanted.over_columns) shape.pop_back();
  const auto is_summed = [&](size_t d) { return own_size(own, d, rank) != all[d]; };
  for (size_t end = rank - 1; end > 0;) {
    if (!is_summed(end - 1)) {
      --end;
      continue;
    }
    size_t begin = end;
    while (begin > 0 && is_summed(begin - 1)) --begin;
    RowSum sum;
    sum.from = shape;
    sum.first = begin;
    sum.count = end - begin;
    const auto at = shape.begin() + static_cast<std::ptrdiff_t>(begin);
    shape.erase(at, at + static_cast<std::ptrdiff_t>(end - begin));
    sum.to = shape;
    sums.push_back(std::move(sum));
    end = begin;
  }
  return sums;
}

ShapedView view_of_summed(const RowSum& sum, void* data) {
  const ShapedView whole = contiguous_view(sum.from, data);
  ShapedView view;
  view.data = data;
  int64_t size = 1;
  for (size_t d = 0; d < sum.from.size(); ++d) {
    if (d >= sum.first && d < sum.first + sum.count)
      size *= sum.from[d];
    else
      view.append(whole.shape[d], whole.strides[d]);
  }
  view.append(size, whole.strides[sum.first + sum.count - 1]);
  return view;
}

}  // namespace opdock
