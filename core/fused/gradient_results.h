// How the gradients of a formula's tensors get these tensors' own shapes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formula/gradient.h"
#include "formula/graph.h"
#include "formula/space.h"

namespace opdock {

// A tensor with a shape and strides of its own.
struct ShapedView {
  std::array<int64_t, formula::kMaxDims> shape{}, strides{};
  int rank = 0;
  void* data = nullptr;

  void append(int64_t size, int64_t stride) {
    shape[static_cast<size_t>(rank)] = size;
    strides[static_cast<size_t>(rank)] = stride;
    ++rank;
  }
  formula::Operand operand() const { return {data, rank, shape.data(), strides.data()}; }
};

// Returns a contiguous tensor.
ShapedView contiguous_view(const std::vector<int64_t>& shape, void* data);

// Returns how the gradient of a tensor is summed that is broadcast to the shape `all`.
formula::Wanted wanted_of(size_t input, const formula::Operand& own,
                          const std::vector<int64_t>& all);

// Returns a tensor as the result of the graph or of the last of row_sums(): without dimensions that
// are summed, and with those of size 1 before its own that the formula has.
ShapedView view_of_gradient(const formula::Wanted& wanted, const formula::Operand& own,
                            const std::vector<int64_t>& all);

// Returns the gradient of a result as the graph takes it: with 1 as the last dimension if the
// result has one number a row and comes without.
ShapedView view_of_incoming(const formula::Input& input, const formula::Operand& own, size_t rank);

// A sum along some dimensions of a tensor, of which the others stay.
struct RowSum {
  std::vector<int64_t> from, to;  // the shapes; contiguous
  size_t first = 0, count = 0;    // the dimensions of `from` that are summed: a range
};
// Returns the sums that make a gradient with the rows of the shape `all` one of the rows of `own`.
// They go from the last dimensions to the first; each is the next one's operand.
std::vector<RowSum> row_sums(const formula::Wanted& wanted, const formula::Operand& own,
                             const std::vector<int64_t>& all);

// Returns the operand of a sum as a tensor whose rows are summed.
ShapedView view_of_summed(const RowSum& sum, void* data);

}  // namespace opdock
