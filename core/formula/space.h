// The index space of a call: rows and columns, and where each tensor has its element of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

inline constexpr int kMaxDims = 16;

// A tensor of the call. Strides are in elements and may be 0 or negative.
struct Operand {
  void* data = nullptr;
  int rank = 0;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
};

// Where a tensor's elements are: element (i0, …, column) is at data + Σ i·stride + column·step.
struct Steps {
  std::array<int64_t, kMaxDims> stride{};  // of the row dimensions
  int64_t column = 0;
};

struct Space {
  // The row dimensions, the outermost first, those that are one step in every tensor merged.
  int ndim = 0;
  std::array<int64_t, kMaxDims> size{};
  int64_t rows = 1;     // the product of the sizes
  int64_t columns = 1;  // elements of a row
  std::vector<Steps> inputs, results;

  int64_t elements() const { return rows * columns; }
};

// Returns the shape to which the inputs are broadcast, from the right; grouped inputs do not count.
// Throws Error, which names the inputs, if they cannot be broadcast, or not divided into the
// groups.
std::vector<int64_t> broadcast_shape(const Graph& graph, const std::vector<Operand>& inputs);

// Returns the shape of result `i`, for that shape of the space: without the last dimension if the
// result is the same in the whole row, only with the last one if it is summed over rows, and [] if
// it is a total.
std::vector<int64_t> result_shape(const Graph& graph, size_t i, const std::vector<int64_t>& shape);

// Returns the space of a call. results: tensors of the result_shape() of their results. If the
// graph has no reductions and no sums, and uses no row() and column(), columns merge with rows
// where each tensor allows it, and dimensions are ordered so that the columns are those along which
// the first result has the smallest stride. If it has grouped inputs, rows are groups, and columns
// their elements; it has no sums then. Throws Error if a reduction's operand has fewer columns than
// the space, and if a tensor beside groups is not contiguous.
Space make_space(const Graph& graph, const std::vector<Operand>& inputs,
                 const std::vector<Operand>& results);

}  // namespace opdock::formula
