// Evaluates a graph in float64, slowly and plainly: the oracle of tests, and the reference of ops
// that have no other. It shares no code with what makes kernels of graphs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

// A tensor of any type, contiguous. The numbers of floats are in `real`, those of bools and
// integers in `integer`; the other vector is empty.
struct Array {
  Type type = Type::kFloat64;
  std::vector<int64_t> shape;
  std::vector<double> real;
  std::vector<int64_t> integer;
};

// Returns the results of the graph for these inputs, of the inputs' types, and scalars (integers
// and bools of which are passed as doubles). An input that is a part of a tensor is passed as the
// whole tensor, and results that are parts of one are returned as one. Floats are computed in
// float64, whatever their type, and are not rounded, except that kCast rounds to a narrower float
// and an exact graph each node to its type, but for leaves and numbers that meet a tensor
// (Graph::rounds()); integers wrap as their types do, and an integer divided by 0 is 0. The shape
// of a result is that to which all inputs are broadcast, without the last dimension if the result
// is the same in the whole row, and without others if it is summed (space.h); that of a formula
// without inputs is []. Throws Error if shapes cannot be broadcast or divided into parts or groups,
// if a reduction's operand has fewer columns than another input, and for the largest of no
// elements.
std::vector<Array> evaluate(const Graph& graph, const std::vector<Array>& inputs,
                            const std::vector<double>& scalars);

}  // namespace opdock::formula
