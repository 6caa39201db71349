// opdock/rows.hpp: for plugins whose ops work along the last dimension: where each row lies, in any
// batch shape and with any batch strides.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ROWS_HPP_
#define OPDOCK_ROWS_HPP_

#include <opdock/rows.cuh>
#include <optional>

#include "opdock/tensor.hpp"

namespace opdock {

// Returns the rows of tensors[0], whose shape decides, and of the other tensors, which have as many
// dimensions or fewer and are broadcast to it: a batch dimension that is missing or has size 1 gets
// stride 0. An absent tensor is nullopt. The caller has checked that the shapes fit; tensors[0] has
// 1 to 16 dimensions.
template <int N>
Rows<N> make_rows(const std::optional<Tensor> (&tensors)[N]) {
  const Tensor& first = *tensors[0];
  Rows<N> rows = {};
  rows.count = 1;
  for (int32_t dim = 0; dim + 1 < first.ndim(); ++dim) {
    const int64_t size = first.size(dim);
    rows.count *= size;
    if (size == 1) continue;
    int64_t stride[N] = {};
    for (int t = 0; t < N; ++t) {
      if (!tensors[t]) continue;
      const int32_t own = dim - (first.ndim() - tensors[t]->ndim());
      if (own >= 0 && tensors[t]->size(own) != 1) stride[t] = tensors[t]->stride(own);
    }
    // One step in the previous dimension is `size` steps in this one, in every tensor: merge them.
    bool merge = rows.ndim > 0;
    for (int t = 0; t < N; ++t) merge = merge && rows.stride[t][rows.ndim - 1] == stride[t] * size;
    if (!merge) ++rows.ndim;
    const int at = rows.ndim - 1;
    rows.size[at] = merge ? rows.size[at] * size : size;
    for (int t = 0; t < N; ++t) rows.stride[t][at] = stride[t];
  }
  return rows;
}

// Returns the address of the first element; NULL if the tensor is absent.
inline void* raw_or_null(const std::optional<Tensor>& tensor) {
  return tensor ? tensor->raw() : nullptr;
}

// Returns the parameter for kernels over the rows of these tensors, as make_rows() describes them.
// tensors[0] has elements.
template <int N>
RowParams<N> row_params(const std::optional<Tensor> (&tensors)[N]) {
  RowParams<N> params = {};
  for (int t = 0; t < N; ++t) params.data[t] = raw_or_null(tensors[t]);
  params.length = tensors[0]->size(-1);
  params.rows = make_rows<N>(tensors);
  return params;
}

// Returns whether every row of tensor t begins at a multiple of `bytes`, so that wide loads are
// possible. element: bytes of an element.
template <int N>
bool rows_aligned(const Rows<N>& rows, int t, const void* data, uint64_t element, uint64_t bytes) {
  uint64_t low = reinterpret_cast<uintptr_t>(data);
  for (int i = 0; i < rows.ndim; ++i) low |= static_cast<uint64_t>(rows.stride[t][i]) * element;
  return low % bytes == 0;
}

}  // namespace opdock
#endif  // OPDOCK_ROWS_HPP_
